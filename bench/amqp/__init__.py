"""What the scenarios of queues need: RabbitMQ's PerfTest, and a client whose frames are encoded beforehand."""
