"""How soon a broker with very many partitions answers after a crash."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Producer

from bench.brokers import Broker, seconds_to_ready
from bench.clients import QUIET, ClientError, create_topics, end_offsets, require_delivered
from bench.figures import HEADWATER, KAFKA, Better, Figure, Limit
from bench.scenarios.base import Scale, Scenario

TOPICS = 1_000
PARTITIONS = 10
RECORDS_EACH = 3
VALUE = b"x" * 100
FLUSH_SECONDS = 600.0


class ManyPartitions(Scenario):
    """From the start after kill -9 to the first answer, with 1,000 topics of 10 partitions and records in each."""

    name = "partitions"
    sides = (HEADWATER,)
    optional_sides = (KAFKA,)
    figures = (
        Figure("restart", "start after kill -9, 10,000 partitions", "s", Better.LOWER, (Limit(5, "s"),)),
        Figure("restart-served", "until every partition gave its end offset", "s", Better.LOWER),
    )

    def run(self, broker: Broker, scratch: Path, scale: Scale) -> Mapping[str, float]:
        """Fill the partitions, kill the broker, and time its start."""
        topics = [f"topic-{number:04}" for number in range(scale.of(TOPICS))]
        create_topics(broker.bootstrap, topics, PARTITIONS)
        _fill(broker.bootstrap, topics)
        broker.kill()
        began = time.monotonic()
        ready = seconds_to_ready(broker)
        ends = end_offsets(broker.bootstrap, topics, PARTITIONS)
        served = time.monotonic() - began
        # A broker that answers soon because it lost or has yet to find its partitions has not started.
        if wrong := sum(end != RECORDS_EACH for end in ends):
            raise ClientError(
                f"{wrong} of {len(ends)} partitions do not end at {RECORDS_EACH} after the crash"
            )
        return {"restart": ready, "restart-served": served}


def _fill(bootstrap: str, topics: list[str]) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "log_level": QUIET, "queue.buffering.max.messages": 1_000_000}
    )
    for topic in topics:
        for partition in range(PARTITIONS):
            for _ in range(RECORDS_EACH):
                producer.produce(topic, VALUE, partition=partition)
        producer.poll(0)
    require_delivered(producer.flush(FLUSH_SECONDS))
