"""What was acknowledged survives the end of the process, whichever way it ends."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

import needs
from headwater.testing.process import BrokerProcess

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

PARTITIONS = 4
SETTINGS = {"num.partitions": str(PARTITIONS)}


class Writer:
    """Produces numbered records without a pause, and remembers which were acknowledged, and where."""

    def __init__(self, bootstrap: str, *, linger_ms: float = 1) -> None:
        self.acknowledged: dict[int, tuple[int, int]] = {}
        self.sent = 0
        self.failed = 0
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": linger_ms,
                "reconnect.backoff.max.ms": 100,
                "message.timeout.ms": 60_000,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def finish(self) -> None:
        """Stop producing, and wait until the fate of every record is known."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(60) == 0

    def _run(self) -> None:
        while not self._stop.is_set():
            number = self.sent
            try:
                self._producer.produce(
                    "numbers", b"%d" % number, partition=number % PARTITIONS, on_delivery=self._delivered
                )
            except BufferError:
                self._producer.poll(0.01)
                continue
            self.sent += 1
            if number % 50 == 0:
                self._producer.poll(0.001)

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.failed += 1
            return
        number = int(message.value())  # type: ignore[attr-defined]
        self.acknowledged[number] = (message.partition(), message.offset())  # type: ignore[attr-defined]


def stored(bootstrap: str) -> dict[tuple[int, int], int]:
    """Read the whole topic: the number at each partition and offset."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "enable.partition.eof": True})
    consumer.assign([TopicPartition("numbers", p, OFFSET_BEGINNING) for p in range(PARTITIONS)])
    found: dict[tuple[int, int], int] = {}
    ended: set[int] = set()
    deadline = time.monotonic() + 60
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline, "the topic could not be read to its end"
        for message in consumer.consume(10_000, 0.5):
            partition = message.partition()
            assert partition is not None
            if message.error() is not None:
                ended.add(partition)
                continue
            value, offset = message.value(), message.offset()
            assert value is not None
            assert offset is not None
            found[partition, offset] = int(value)
    consumer.close()
    return found


def assert_nothing_lost_or_doubled(writer: Writer, found: dict[tuple[int, int], int]) -> None:
    for number, place in writer.acknowledged.items():
        assert found[place] == number
    assert len(set(found.values())) == len(found), "a record was stored twice"
    for partition in range(PARTITIONS):
        offsets = sorted(offset for p, offset in found if p == partition)
        assert offsets == list(range(len(offsets)))
        numbers = [found[partition, offset] for offset in offsets]
        assert numbers == sorted(numbers), "the order of one producer's records changed"


def test_kill_9_under_load_loses_nothing_acknowledged(tmp_path: Path) -> None:
    pause = random.Random(7)
    with BrokerProcess(tmp_path / "data", settings=SETTINGS) as broker:
        writer = Writer(broker.bootstrap)
        for _ in range(8):
            time.sleep(pause.uniform(0.2, 1.0))
            broker.kill()
            broker.start()
        time.sleep(0.5)
        writer.finish()
        found = stored(broker.bootstrap)
    assert writer.failed == 0
    assert len(writer.acknowledged) == writer.sent > 1000
    assert_nothing_lost_or_doubled(writer, found)


def test_sigterm_under_load_loses_nothing_and_ends_soon(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", settings=SETTINGS) as broker:
        writer = Writer(broker.bootstrap)
        for _ in range(3):
            time.sleep(0.7)
            began = time.monotonic()
            assert broker.stop() == 0
            assert time.monotonic() - began < 10
            broker.start()
        writer.finish()
        found = stored(broker.bootstrap)
    assert writer.failed == 0
    assert_nothing_lost_or_doubled(writer, found)


def test_a_second_process_on_the_same_data_is_refused(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as first:
        second = BrokerProcess(tmp_path / "data")
        with pytest.raises(Exception, match="in use by another process"):
            second.start()
        assert first.pid


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MB that can be filled."""
    with needs.small_disk(tmp_path / "disk", "24m") as place:
        yield place


def test_a_full_disk_refuses_records_and_takes_them_again_when_there_is_room(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    with BrokerProcess(small_disk / "data", settings=SETTINGS) as broker:
        config = {"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 4000, "linger.ms": 5}
        outcomes: list[object] = []
        producer = Producer(config)

        def send(count: int) -> None:
            for _ in range(count):
                producer.produce("full", os.urandom(10_000), on_delivery=lambda e, m: outcomes.append(e))
            producer.flush(30)

        send(20)
        assert outcomes == [None] * 20
        with pytest.raises(OSError, match="No space"):
            fill(ballast)
        outcomes.clear()
        send(50)
        assert len(outcomes) == 50
        assert any(error is not None for error in outcomes)
        acknowledged = 20 + sum(error is None for error in outcomes)
        low, high = watermarks(broker.bootstrap, "full")
        assert (low, high) >= (0, acknowledged), "reading goes on while the disk is full"
        ballast.unlink()
        outcomes.clear()
        send(20)
        assert outcomes == [None] * 20
        broker.restart()
        assert watermarks(broker.bootstrap, "full")[1] >= acknowledged + 20


def fill(ballast: Path) -> None:
    """Take all the room there is."""
    with ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))


def watermarks(bootstrap: str, topic: str) -> tuple[int, int]:
    """Sum the offsets of a topic's partitions."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check"})
    low = high = 0
    for partition in range(PARTITIONS):
        for _ in range(20):
            try:
                bounds = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
                break
            except KafkaException:
                time.sleep(0.2)
        low, high = low + bounds[0], high + bounds[1]
    consumer.close()
    return low, high
