"""Postgres into topics, by Headwater's capture and by Debezium's embedded engine."""
