"""Kafka v2 record batches as bytes: headers, checksums, records and codecs."""
