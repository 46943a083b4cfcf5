"""Keyed state in Python on Spark: rows meet their key's state, many keys at a time."""
