"""The demo's producer and consumer: real Kafka clients, each in a process of its own.

    python -m headwater.cli.demo.clients produce|consume BOOTSTRAP TOPIC RATE

Each prints what it has done so far as one JSON object a line, four times a second, and ends on SIGTERM.
The time a record was made is in its value, so the consumer knows how long it was under way; both processes
read the same machine's clock.
"""

from __future__ import annotations

import json
import logging
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

REPORT_SECONDS = 0.25
_TICK_SECONDS = 0.005
_MAX_SAMPLES = 500
_STOP_SECONDS = 6

_log = logging.getLogger(__name__)


@dataclass
class Report:
    """What a client has done since it started; the latencies are a sample of those since the last report."""

    records: int = 0
    bytes: int = 0
    failed: int = 0
    lag: int = 0
    latencies_ms: list[float] = field(default_factory=list)


class Reporter:
    """Prints the report, and knows when it is due."""

    def __init__(self) -> None:
        self.report = Report()
        self._due = time.monotonic() + REPORT_SECONDS

    def is_due(self) -> bool:
        """Tell whether the last report is old enough for another."""
        return time.monotonic() >= self._due

    def print(self) -> None:
        """Print the report."""
        self._due = time.monotonic() + REPORT_SECONDS
        report = self.report
        if len(report.latencies_ms) > _MAX_SAMPLES:
            report.latencies_ms = random.sample(report.latencies_ms, _MAX_SAMPLES)
        sys.stdout.write(json.dumps(asdict(report)) + "\n")
        sys.stdout.flush()
        report.latencies_ms = []


def order(number: int) -> bytes:
    """Return the value of one record: an order of about a hundred bytes."""
    return b'{"order_id":"%012d","user_id":"u%05d","amount":%d.%02d,"country":"%s","made_ns":%d}' % (
        number,
        number * 7919 % 100_000,
        number % 900 + 1,
        number % 100,
        b"NL",
        time.time_ns(),
    )


def made_ns(value: bytes) -> int:
    """Return when the record of this value was made."""
    return int(value[value.rindex(b":") + 1 : -1])


def produce(bootstrap: str, topic: str, rate: int, running: Callable[[], bool]) -> None:
    """Produce orders at `rate` a second, or as fast as the broker takes them where it is 0."""
    reporter = Reporter()
    report = reporter.report
    handed = handed_bytes = 0

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            report.failed += 1

    def print_acknowledged() -> None:
        report.records = handed - len(producer) - report.failed
        report.bytes = handed_bytes * report.records // handed if handed else 0
        reporter.print()

    # Only failures call back: a million calls a second into Python would be the bottleneck of the demo.
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 5,
            "delivery.report.only.error": True,
            "queue.buffering.max.messages": 100_000,
        }
    )
    started = time.monotonic()
    while running():
        due = int((time.monotonic() - started) * rate) - handed if rate else 1000
        for _ in range(min(due, 1000)):
            value = order(handed)
            try:
                producer.produce(topic, value, key=value[13:25], on_delivery=on_delivery)
            except BufferError:
                producer.poll(_TICK_SECONDS)
                break
            handed += 1
            handed_bytes += len(value)
        producer.poll(0)
        if rate and due < 1000:
            time.sleep(_TICK_SECONDS)
        if reporter.is_due():
            print_acknowledged()
    producer.flush(5)
    print_acknowledged()


def consume(bootstrap: str, topic: str, running: Callable[[], bool]) -> None:
    """Consume the topic from its start, as a group of one; the first report is when it has its partitions."""
    reporter = Reporter()
    report = reporter.report
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{topic}-readers",
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
        }
    )
    assigned = False

    def on_assign(_consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        nonlocal assigned
        assigned = True

    consumer.subscribe([topic], on_assign=on_assign)
    while running():
        # `consume` waits for a full batch or its whole timeout, so the wait is for the first record alone.
        first = consumer.poll(0.1)
        messages = [] if first is None else [first, *consumer.consume(1000, 0)]
        now = time.time_ns()
        for message in messages:
            error = message.error()
            if error is not None:
                _log.warning("%s", error)
                report.failed += 1
                continue
            value = message.value() or b""
            report.records += 1
            report.bytes += len(value)
            report.latencies_ms.append((now - made_ns(value)) / 1e6)
        if assigned and reporter.is_due():
            report.lag = _lag(consumer)
            reporter.print()
    consumer.close()
    reporter.print()


def _lag(consumer: Consumer) -> int:
    """Return how many records of its partitions the consumer has yet to see, as of its last fetches."""
    lag = 0
    for partition in consumer.position(consumer.assignment()):
        _, end = consumer.get_watermark_offsets(partition, cached=True)
        # Both are negative until the first fetch; the topic starts at 0.
        lag += max(end, 0) - max(partition.offset, 0)
    return lag


def main(arguments: list[str]) -> int:
    """Run the producer or the consumer until SIGTERM."""
    logging.basicConfig(format="%(message)s")
    role, bootstrap, topic, rate = arguments
    stopped = False

    def stop(_signal: int, _frame: object) -> None:
        nonlocal stopped
        stopped = True
        # The client waits long for a broker that is gone; SIGALRM ends the process if it still does.
        signal.alarm(_STOP_SECONDS)

    signal.signal(signal.SIGTERM, stop)
    try:
        if role == "produce":
            produce(bootstrap, topic, int(rate), lambda: not stopped)
        else:
            consume(bootstrap, topic, lambda: not stopped)
    except KafkaException as error:
        _log.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
