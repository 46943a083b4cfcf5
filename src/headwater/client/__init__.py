"""A blocking Kafka client on our own codecs: what pipelines read and write the log with."""
