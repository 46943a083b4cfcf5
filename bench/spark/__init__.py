"""The pipelines that are measured, each written for Headwater and for Spark's own Kafka connector."""
