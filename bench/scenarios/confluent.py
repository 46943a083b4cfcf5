"""confluent-kafka's producer with large batches, and with small ones over many partitions."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Producer

from bench.brokers import Broker
from bench.clients import create_topics, require_delivered
from bench.figures import HEADWATER, KAFKA, KAFKA_FLUSH, AtLeast, Better, Figure
from bench.process import CpuMeter
from bench.scenarios.base import Scale, Scenario

RECORDS = 3_000_000
PARTITIONS = 4
LARGE = {"linger.ms": 20, "batch.size": 1_000_000, "queue.buffering.max.messages": 1_000_000}
SPREAD_RECORDS = 600_000
SPREAD_PARTITIONS = 100
SMALL = {"linger.ms": 5, "batch.size": 1_500}
VALUE = b"x" * 100
TOPIC = "bench"
# Serving delivery reports is the client's work, not the broker's: once for so many records is often enough.
POLL_EVERY = 1_000
FLUSH_SECONDS = 300.0


class ConfluentProducer(Scenario):
    """A producer with a linger of 20 ms and batches of 1 MB, until the last acknowledgement."""

    name = "confluent"
    figures = (
        Figure(
            "confluent", "confluent-kafka producer, 1 MB batches", "records/s", Better.HIGHER, (AtLeast(1.0),)
        ),
        Figure("confluent-cpu", "broker CPU, million produced so", "s", Better.LOWER),
    )

    def run(self, broker: Broker, scratch: Path, scale: Scale) -> Mapping[str, float]:
        """Produce from one thread and time it."""
        records = scale.of(RECORDS)
        create_topics(broker.bootstrap, [TOPIC], PARTITIONS)
        with CpuMeter(broker.pid) as meter:
            seconds = _produce(broker.bootstrap, records, LARGE)
        return {"confluent": records / seconds, "confluent-cpu": meter.seconds / (records / 1e6)}


class SpreadProducer(Scenario):
    """A producer with batches of some ten records, each to another of many partitions."""

    name = "spread"
    sides = (KAFKA, HEADWATER, KAFKA_FLUSH)
    figures = (
        Figure(
            "spread",
            "small batches over 100 partitions",
            "records/s",
            Better.HIGHER,
            (AtLeast(1.0), AtLeast(3.0, KAFKA_FLUSH)),
        ),
        Figure("spread-cpu", "broker CPU, million so spread", "s", Better.LOWER),
    )

    def run(self, broker: Broker, scratch: Path, scale: Scale) -> Mapping[str, float]:
        """Produce from one thread and time it."""
        records = scale.of(SPREAD_RECORDS)
        create_topics(broker.bootstrap, [TOPIC], SPREAD_PARTITIONS)
        with CpuMeter(broker.pid) as meter:
            seconds = _produce(broker.bootstrap, records, SMALL, over=SPREAD_PARTITIONS)
        return {"spread": records / seconds, "spread-cpu": meter.seconds / (records / 1e6)}


def _produce(bootstrap: str, records: int, settings: Mapping[str, int], *, over: int = 0) -> float:
    """Produce to each of so many partitions in turn, or to those that the client chooses."""
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    began = time.perf_counter()
    for first in range(0, records, POLL_EVERY):
        for number in range(first, min(first + POLL_EVERY, records)):
            while True:
                try:
                    producer.produce(TOPIC, VALUE, partition=number % over if over else -1)
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.poll(0)
    require_delivered(producer.flush(FLUSH_SECONDS))
    return time.perf_counter() - began
