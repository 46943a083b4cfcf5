"""View stores: rows, their change feed and the epochs that made them, in one transaction."""
