"""The Kafka side of the shell: connections, and one module of handlers per family of APIs."""
