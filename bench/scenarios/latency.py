"""How long one record takes to be acknowledged when there is little to do."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from confluent_kafka import KafkaError, Message, Producer

from bench.brokers import Broker
from bench.clients import ClientError, create_topics, require_delivered
from bench.figures import HEADWATER, HEADWATER_OS, KAFKA, KAFKA_FLUSH, AtMost, Better, Figure, percentile
from bench.scenarios.base import Scale, Scenario

RATE = 1_000
WARM_SECONDS = 5
SECONDS = 20
DISK_SECONDS = 5
PAGE = b"x" * 4096
VALUE = b"x" * 100
TOPIC = "bench"
FLUSH_SECONDS = 60.0


class Latency(Scenario):
    """One record each millisecond with acks=all, from the call of `produce` to its delivery report."""

    name = "latency"
    sides: ClassVar[tuple[str, ...]] = (KAFKA, HEADWATER, KAFKA_FLUSH)
    # Against Kafka as it comes, and against Kafka with the same promise.
    _targets = (AtMost(1.0), AtMost(1.0, KAFKA_FLUSH))
    figures: ClassVar[tuple[Figure, ...]] = (
        Figure("latency-p50", "latency at 1,000/s, p50", "ms", Better.LOWER, _targets),
        Figure("latency-p99", "latency at 1,000/s, p99", "ms", Better.LOWER, _targets),
        Figure("latency-p99.9", "latency at 1,000/s, p99.9", "ms", Better.LOWER),
        # What no broker that syncs gets below, whatever it is made of.
        Figure("latency-disk", "one write and its sync at 1,000/s, p50", "ms", Better.LOWER),
    )

    def run(self, broker: Broker, scratch: Path, scale: Scale) -> Mapping[str, float]:
        """Produce at an even pace and take the percentiles, those of the first seconds left out."""
        create_topics(broker.bootstrap, [TOPIC], 1)
        # The JVM compiles its hot paths in the first seconds, in a quick look too: leaving them out favours Kafka.
        warm = WARM_SECONDS * RATE
        latencies = Pace(broker.bootstrap).produce(warm + scale.of(SECONDS * RATE))
        ordered = sorted(latencies[warm:])
        syncs = sorted(disk_latencies(scratch / "disk", scale.of(DISK_SECONDS * RATE)))
        return {
            "latency-p50": percentile(ordered, 0.50),
            "latency-p99": percentile(ordered, 0.99),
            "latency-p99.9": percentile(ordered, 0.999),
            "latency-disk": percentile(syncs, 0.50),
        }


class LatencyWithoutSync(Latency):
    """The same with `--durability os`: neither side waits for its disk."""

    name = "latency-os"
    sides = (KAFKA, HEADWATER_OS)
    figures = (
        Figure(
            "latency-os-p50",
            "latency without syncs, p50",
            "ms",
            Better.LOWER,
            (AtMost(1.0),),
            ours=HEADWATER_OS,
        ),
        Figure(
            "latency-os-p99",
            "latency without syncs, p99",
            "ms",
            Better.LOWER,
            (AtMost(1.0),),
            ours=HEADWATER_OS,
        ),
    )

    def run(self, broker: Broker, scratch: Path, scale: Scale) -> Mapping[str, float]:
        """Return what the scenario with syncs does, under names of its own."""
        measured = super().run(broker, scratch, scale)
        return {"latency-os-p50": measured["latency-p50"], "latency-os-p99": measured["latency-p99"]}


def disk_latencies(path: Path, writes: int) -> list[float]:
    """Return the milliseconds that each write of a page and its fdatasync takes, at the pace of the records.

    All blocks of the file are there beforehand, so that the file system has nothing else to write.
    """
    milliseconds: list[float] = []
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(fd, PAGE * writes, 0)
        os.fsync(fd)
        for number in beats(writes):
            began = time.perf_counter()
            os.pwrite(fd, PAGE, number * len(PAGE))
            os.fdatasync(fd)
            milliseconds.append((time.perf_counter() - began) * 1e3)
    finally:
        os.close(fd)
    return milliseconds


def beats(count: int) -> Iterator[int]:
    """Yield so many numbers, each at its time.

    Sleeping until the next beat, not for a beat, so that a late one does not lower the rate.
    """
    began = time.perf_counter()
    for number in range(count):
        time.sleep(max(0.0, began + number / RATE - time.perf_counter()))
        yield number


class Pace:
    """A producer at a steady rate; delivery reports are served by a thread of their own."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 0,
                "socket.nagle.disable": True,
            }
        )
        self._milliseconds: list[float] = []
        self._error: KafkaError | None = None
        self._done = threading.Event()

    def produce(self, records: int) -> list[float]:
        """Produce that many records and return the milliseconds each took, in order of acknowledgement."""
        serving = threading.Thread(target=self._serve)
        serving.start()
        try:
            self._send(records)
            require_delivered(self._producer.flush(FLUSH_SECONDS))
        finally:
            self._done.set()
            serving.join()
        if self._error is not None:
            raise ClientError(f"a record was refused: {self._error.str()}")
        return self._milliseconds

    def _send(self, records: int) -> None:
        for _ in beats(records):
            self._send_one()

    def _send_one(self) -> None:
        sent = time.perf_counter()

        def reported(error: KafkaError | None, _message: Message) -> None:
            self._milliseconds.append((time.perf_counter() - sent) * 1e3)
            self._error = self._error or error

        self._producer.produce(TOPIC, VALUE, on_delivery=reported)

    def _serve(self) -> None:
        while not self._done.is_set():
            self._producer.poll(0.1)
