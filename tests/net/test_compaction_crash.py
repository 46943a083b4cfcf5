"""A broker that is killed again and again while it compacts keeps the newest value of every key."""

from __future__ import annotations

import random
import threading
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headwater.testing.process import BrokerProcess

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

KEYS = 200
KILLS = 6
SETTINGS = {"log.cleaner.backoff.ms": "1"}
CONFIG = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.bytes": str(1024 * 1024),
    "delete.retention.ms": "200",
}


class Writer:
    """Writes rising numbers under changing keys, and remembers which were acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[int, tuple[int, int]] = {}
        self.sent: dict[int, tuple[int, bool]] = {}
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "reconnect.backoff.max.ms": 100,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(60) == 0

    def _run(self) -> None:
        chance = random.Random(7)
        number = 0
        while not self._stop.is_set():
            key = chance.randrange(KEYS)
            value = None if chance.random() < 0.1 else b"%d " % number + b"x" * 500
            headers: dict[str, str | bytes | None] = {"number": b"%d" % number}
            try:
                self._producer.produce(
                    "accounts",
                    value,
                    b"%d" % key,
                    headers=headers,
                    on_delivery=partial(self._delivered, key, number),
                )
            except BufferError:
                self._producer.poll(0.01)
                continue
            self.sent[key] = (number, value is not None)
            number += 1
            self._producer.poll(0)
            if number % 500 == 0:
                self._stop.wait(0.05)  # so that compaction has something to keep up with

    def _delivered(self, key: int, number: int, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        offset = message.offset()
        assert offset is not None
        self.acknowledged[key] = (number, offset)


def read(bootstrap: str) -> dict[int, tuple[int, int, bool]]:
    """Return the newest number of every key, its offset, and whether it has a value."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True}
    found: dict[int, tuple[int, int, bool]] = {}
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition("accounts", 0, OFFSET_BEGINNING)])
        last = -1
        while True:
            message = consumer.poll(30)
            assert message is not None, "the end was not reached"
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    return found
                raise KafkaException(error)
            offset, key = message.offset(), message.key()
            assert offset is not None
            assert key is not None
            assert offset > last, "offsets rise"
            last = offset
            number = int(dict(message.headers() or ())["number"])  # type: ignore[arg-type]
            found[int(key)] = (number, offset, message.value() is not None)


def test_nothing_is_lost_and_nothing_comes_back(tmp_path: Path) -> None:
    chance = random.Random(11)
    with BrokerProcess(tmp_path / "data", settings=SETTINGS) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        [created] = admin.create_topics([NewTopic("accounts", 1, 1, config=CONFIG)]).values()
        created.result(20)
        writer = Writer(broker.bootstrap)
        try:
            for _ in range(KILLS):
                threading.Event().wait(chance.uniform(0.5, 2))
                broker.kill()
                broker.start()
        finally:
            writer.finish()
        found = read(broker.bootstrap)
        broker.kill()
        broker.start()
        again = read(broker.bootstrap)
        compactions = broker.errors().count("is compacted up to")
    assert compactions >= KILLS, "there was something to be interrupted"
    for key, (number, alive) in writer.sent.items():
        assert writer.acknowledged[key][0] == number, "the writer waited for every answer"
        expected = (*writer.acknowledged[key], alive)
        # Only a tombstone may be missing, when its time was up.
        for seen in (found, again):
            assert seen.get(key, expected) == expected
            assert key in seen or not alive
