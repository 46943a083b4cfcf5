"""Topics and groups as pure state machines, replayed from the log."""
