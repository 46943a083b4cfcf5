"""Errors, clock, settings and addresses: what every other package may import."""
