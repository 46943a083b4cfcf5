"""AMQP 0-9-1 messages as bytes: field tables, and the properties of a message."""
