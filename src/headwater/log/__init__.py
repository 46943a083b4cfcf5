"""The durable log: segments, indexes, recovery, and the directory they live in."""
