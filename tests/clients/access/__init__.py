"""Real clients that have to prove who they are."""
