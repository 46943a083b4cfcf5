"""Share groups (KIP-932): partitions whose records several members take, one by one, as from a queue."""
