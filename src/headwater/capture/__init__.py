"""Change data capture: databases followed into topics."""
