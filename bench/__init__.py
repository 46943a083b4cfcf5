"""Headwater and Kafka side by side: the same work, in turns, on the same disk, as ratios."""
