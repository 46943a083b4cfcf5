"""Applications: what a user declares, checked when it is loaded; no Spark and no sockets here."""
