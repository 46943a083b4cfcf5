"""AMQP 0-9-1 with RabbitMQ's extensions: frames, methods and the handshake, without a socket."""
