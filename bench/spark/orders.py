"""The orders that every pipeline reads: the same ones each time, about 90 bytes of JSON."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from confluent_kafka import Producer

from bench.clients import QUIET, create_topics, require_delivered

TOPIC = "orders"
PARTITIONS = 4
SCHEMA = "order_id string, user_id string, amount double, placed_at timestamp"
EVENT_TIME = "placed_at"
WINDOW = "10 seconds"
LATENESS = "10 seconds"

# A thousand orders in each window, and no user twice among them: as many groups as orders.
ORDERS_PER_SECOND = 100
USERS = 1_000_000
USER_STEP = 7_919
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
POLL_EVERY = 1_000
FLUSH_SECONDS = 120.0


def orders(count: int) -> Iterator[tuple[str, str]]:
    """Return the key and the value of each order, in order of time.

    >>> next(orders(1))
    ('1000000', '{"order_id":"1000000","user_id":"0","amount":1.25,"placed_at":"2026-01-01T00:00:00Z"}')
    """
    for number in range(count):
        second, within = divmod(number, ORDERS_PER_SECOND)
        if within == 0:
            placed_at = f"{FIRST + timedelta(seconds=second):%Y-%m-%dT%H:%M:%SZ}"
        key = str(1_000_000 + number)
        user = number * USER_STEP % USERS
        amount = 1.25 + number % 400
        yield (
            key,
            f'{{"order_id":"{key}","user_id":"{user}","amount":{amount},"placed_at":"{placed_at}"}}',
        )


def fill(bootstrap: str, count: int, topic: str = TOPIC) -> None:
    """Create the topic and write the orders into it, one partition after the other in turn, uncompressed."""
    create_topics(bootstrap, [topic], PARTITIONS)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": 1_000_000, "log_level": QUIET}
    )
    for number, (key, value) in enumerate(orders(count)):
        while True:
            try:
                producer.produce(topic, value, key, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.01)
        if number % POLL_EVERY == 0:
            producer.poll(0)
    require_delivered(producer.flush(FLUSH_SECONDS))
