"""Exactly once from topic to topic, with the broker and the client killed in the middle of it."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headwater.testing.process import BrokerProcess

from .transform import PARTITIONS, SOURCE, TARGET

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

RECORDS = 20_000
KILLS = 12


def fill(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, num_partitions=PARTITIONS) for name in (SOURCE, TARGET)]
    for future in admin.create_topics(topics).values():
        future.result(20)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce(SOURCE, b"%d" % number, partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(60) == 0


def committed(bootstrap: str) -> list[int]:
    """Read what readers of committed records see of the target."""
    found: list[int] = []
    ended: set[int | None] = set()
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "check",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(TARGET, p, 0) for p in range(PARTITIONS)])
    while len(ended) < PARTITIONS:
        for message in consumer.consume(10_000, 0.5):
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF or error.retriable(), error
                ended.add(message.partition())
            elif (value := message.value()) is not None:
                found.append(int(value))
    consumer.close()
    return found


class Loop:
    """The client, started again whenever it has ended."""

    def __init__(self, bootstrap: str, log: Path) -> None:
        self._command = [sys.executable, str(Path(__file__).with_name("transform.py")), bootstrap]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def tend(self) -> None:
        if self._process is None or self._process.poll() is not None:
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def test_kill_9_of_broker_and_client_leaves_one_committed_copy_of_each_record(tmp_path: Path) -> None:
    chance = random.Random(11)
    with BrokerProcess(tmp_path / "data") as broker:
        fill(broker.bootstrap)
        loop = Loop(broker.bootstrap, tmp_path / "loop.log")
        try:
            for kill in range(KILLS):
                until = time.monotonic() + chance.uniform(0.6, 1.6)
                while time.monotonic() < until:
                    loop.tend()
                    time.sleep(0.02)
                if kill % 3:
                    broker.kill()
                    broker.start()
                if kill % 3 != 1:
                    loop.kill()
            deadline = time.monotonic() + 90
            while len(found := committed(broker.bootstrap)) < RECORDS:
                assert time.monotonic() < deadline, f"{len(found)} of {RECORDS} records in time"
                loop.tend()
                time.sleep(0.2)
        finally:
            loop.kill()
        found = committed(broker.bootstrap)
    assert sorted(found) == [2 * number for number in range(RECORDS)]
