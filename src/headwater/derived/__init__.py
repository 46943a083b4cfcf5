"""Stores that are derived from tables' topics, and kept in step with them: search indexes, caches, warehouses."""
