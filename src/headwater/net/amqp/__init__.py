"""The AMQP listener: connections, channels, and the disk behind queues."""
