"""A consume–transform–produce loop, as a process of its own to be killed: `python transform.py BOOTSTRAP`.

It goes on from the offsets that the last committed transaction stored, and ends at the first error.
"""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, Producer, TopicPartition

SOURCE, TARGET = "source", "target"
PARTITIONS = 2
PER_TRANSACTION = 8
SECONDS = 20.0


def main(bootstrap: str) -> None:
    """Copy until killed."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": "transform", "transaction.timeout.ms": 10_000}
    )
    # First fence whoever did this before: its transaction ends, and the offsets are stable.
    producer.init_transactions(SECONDS)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "transform",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    positions = consumer.committed([TopicPartition(SOURCE, p) for p in range(PARTITIONS)], timeout=SECONDS)
    for position in positions:
        assert position.error is None, position.error
        position.offset = max(position.offset, 0)
    consumer.assign(positions)
    while True:
        messages = consumer.consume(PER_TRANSACTION, 0.2)
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            assert message.error() is None, message.error()
            value = message.value()
            assert value is not None
            producer.produce(TARGET, b"%d" % (2 * int(value)), partition=int(value) % PARTITIONS)
        producer.send_offsets_to_transaction(
            consumer.position(positions), consumer.consumer_group_metadata(), SECONDS
        )
        producer.commit_transaction(SECONDS)


if __name__ == "__main__":
    main(sys.argv[1])
