"""The demo: a producer, a broker and a consumer as processes, and a live view of what flows through them."""
