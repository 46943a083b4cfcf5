"""Queues, exchanges and bindings, as a state machine that AMQP 0-9-1's clients know."""
