"""Pipelines: an application as Spark Structured Streaming queries."""
