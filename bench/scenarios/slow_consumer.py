"""What a consumer that reads old segments from disk costs a producer and a consumer of new records."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

from bench.brokers import Broker
from bench.clients import QUIET, ClientError, create_topics, require_delivered
from bench.figures import Better, Figure, Limit
from bench.scenarios.base import Scale, Scenario

OLD, NEW = "old", "new"
OLD_BYTES = 4_000_000_000
OLD_VALUE = 100_000
OLD_RATE = 20_000_000
VALUE = b"x" * 1000
PARTITIONS = 4
SECONDS = 3.0
WARM_UP_SECONDS = 3.0
SETTLE_SECONDS = 1.0
PAIRS = 12
POLL_EVERY = 500
FLUSH_SECONDS = 300.0


class SlowConsumer(Scenario):
    """Records produced and consumed at full speed, beside a reader of several GB that no cache holds, and without."""

    name = "slow-consumer"
    figures = (
        Figure("tail", "produced and consumed at the tail, 1 KB", "records/s", Better.HIGHER),
        Figure(
            "slow-consumer",
            "of that lost to a consumer of old segments, 20 MB/s from disk",
            "%",
            Better.LOWER,
            (Limit(10, "%"),),
        ),
    )

    def run(self, broker: Broker, scratch: Path, scale: Scale) -> Mapping[str, float]:
        """Write the old records, then measure in turn with and without their reader."""
        create_topics(broker.bootstrap, [OLD], 1)
        create_topics(broker.bootstrap, [NEW], PARTITIONS)
        fill(broker.bootstrap, scale.of(OLD_BYTES) // OLD_VALUE)
        produce_and_consume(broker.bootstrap, WARM_UP_SECONDS)
        # The disk has slow and fast spells of many seconds: only neighbours in time can be compared.
        alone: list[float] = []
        lost: list[float] = []
        for pair in range(PAIRS):
            rates = [turn(broker, with_reader=(pair + place) % 2 == 1) for place in range(2)]
            one, other = reversed(rates) if pair % 2 else rates
            alone.append(one)
            lost.append(100 * (1 - other / one))
        print("  lost in each pair, %: " + ", ".join(f"{part:.0f}" for part in lost), flush=True)
        # Less than nothing is lost where chance was larger than the difference: that is told, not hidden.
        return {"tail": median(alone), "slow-consumer": median(lost)}


def turn(broker: Broker, *, with_reader: bool) -> float:
    """Produce and consume for a while, on a disk that owes nothing, beside the reader of old records or not."""
    drop_cached(broker.data)
    if with_reader:
        with old_reader(broker.bootstrap):
            return produce_and_consume(broker.bootstrap, SECONDS)
    time.sleep(SETTLE_SECONDS)
    return produce_and_consume(broker.bootstrap, SECONDS)


def fill(bootstrap: str, records: int) -> None:
    """Write the records that will be old."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": 1_000_000, "log_level": QUIET}
    )
    value = os.urandom(OLD_VALUE)
    for _ in range(records):
        _produce(producer, OLD, value)
    require_delivered(producer.flush(FLUSH_SECONDS))


def drop_cached(data: Path) -> None:
    """Have the system forget what its page cache holds of a broker's segments."""
    os.sync()
    for path in data.rglob("*.log"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


@contextmanager
def old_reader(bootstrap: str) -> Iterator[None]:
    """Have the old topic read meanwhile, and make sure that it was."""
    command = [sys.executable, "-m", "bench.old_reader", bootstrap, OLD, str(OLD_RATE)]
    reader = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        time.sleep(SETTLE_SECONDS)
        yield
    finally:
        output, _ = reader.communicate("\n")
    if not output.strip() or int(output) < OLD_RATE:
        raise ClientError(f"the reader of old records read {output.strip() or 'nothing'}")


def produce_and_consume(bootstrap: str, seconds: float) -> float:
    """Produce as fast as goes for a time while another thread consumes; return the consumed records per second."""
    consumed = 0
    stop = threading.Event()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "tail", "log_level": QUIET})
    consumer.assign([TopicPartition(NEW, partition, OFFSET_END) for partition in range(PARTITIONS)])

    def follow() -> None:
        nonlocal consumed
        while not stop.is_set():
            consumed += len(consumer.consume(10_000, 0.05))

    follower = threading.Thread(target=follow)
    follower.start()
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": 1_000_000, "log_level": QUIET}
    )
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        for _ in range(POLL_EVERY):
            _produce(producer, NEW, VALUE)
        producer.poll(0)
    took = time.monotonic() - began
    rate = consumed / took
    require_delivered(producer.flush(FLUSH_SECONDS))
    stop.set()
    follower.join()
    consumer.close()
    return rate


def _produce(producer: Producer, topic: str, value: bytes) -> None:
    while True:
        try:
            producer.produce(topic, value)
            return
        except BufferError:
            producer.poll(0.01)
