"""Tests of the wire codecs: bytes against kio's own readers and writers, and against bad input."""
