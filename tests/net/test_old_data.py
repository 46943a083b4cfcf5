"""A data directory that an earlier version left behind opens, and holds what it held."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from headwater.log import verify
from headwater.testing.process import BrokerProcess

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
sys.path.insert(0, str(FIXTURES))
from make_data import SECONDS, read  # noqa: E402 - it lies beside what it has made

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

# Time goes on, and what is kept for a while must still be there.
SETTINGS = {"log.cleaner.enable": "false", "offsets.retention.minutes": str(2**31 - 1)}


@pytest.fixture(params=sorted(path.name for path in FIXTURES.glob("data-v*")))
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[BrokerProcess, dict[str, Any]]]:
    """A broker on a copy of old data, and what it is to find."""
    source = FIXTURES / request.param
    shutil.copytree(source / "data", tmp_path / "data")
    with BrokerProcess(tmp_path / "data", settings=SETTINGS) as broker:
        yield broker, json.loads((source / "expected.json").read_text())


def test_every_record_is_there(old: tuple[BrokerProcess, dict[str, Any]]) -> None:
    broker, expected = old
    _compare(broker, expected)
    # And it goes on from there.
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("orders", b"new", b"new", partition=0)
    assert producer.flush(SECONDS) == 0
    last = expected["records"]["orders-0"][-1]
    broker.restart()
    rows = read(broker, "orders", 0)
    assert rows[:-1] == expected["records"]["orders-0"]
    assert [rows[-1][0], *rows[-1][2:4]] == [last[0] + 1, "new", "new"]
    broker.kill()
    broker.start()
    assert read(broker, "orders", 0) == rows


def _compare(broker: BrokerProcess, expected: dict[str, Any]) -> None:
    for name, rows in expected["records"].items():
        topic, _, partition = name.rpartition("-")
        assert read(broker, topic, int(partition)) == rows, name


def test_offsets_are_there(old: tuple[BrokerProcess, dict[str, Any]]) -> None:
    broker, expected = old
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "billing"}
    with closing(Consumer(settings)) as consumer:
        [found] = consumer.committed([TopicPartition("orders", 0)], timeout=SECONDS)
    assert found.offset == expected["offsets"]["orders-0"]


def test_a_transactional_producer_takes_over(old: tuple[BrokerProcess, dict[str, Any]]) -> None:
    broker, expected = old
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "payments"})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce("payments", b"again", b"4")
    producer.commit_transaction(SECONDS)
    rows = read(broker, "payments", 0)
    assert rows[:-1] == expected["records"]["payments-0"]
    assert rows[-1][3] == "again"


def test_what_it_left_is_sound_but_for_the_torn_write(tmp_path: Path) -> None:
    for source in FIXTURES.glob("data-v*"):
        found = [
            item.kind
            for segment in verify.segments(source / "data", live=False)
            for item in verify.verify(segment)
            if isinstance(item, verify.Finding)
        ]
        assert found == [verify.Kind.TORN]
