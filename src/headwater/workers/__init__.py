"""Work that goes on in threads until it is told to stop: tries, pauses, what is said of it, and its figures."""
