"""Real clients on Headwater and on Kafka: each test states Kafka's behaviour and holds on both."""
