"""The demo: a shop whose customers are made up live, and the application that follows them."""
