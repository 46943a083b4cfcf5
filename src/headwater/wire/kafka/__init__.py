"""The Kafka protocol: framing, API versions, and the hand-written hot messages."""
