"""`headwater transactions` against real brokers."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer

from .shell import Shell, eventually

pytestmark = pytest.mark.real


@pytest.fixture
def producer(shell: Shell, name: str, topic: str) -> Producer:
    """A producer with a transaction open in one partition."""
    producer = Producer({"bootstrap.servers": shell.bootstrap, "transactional.id": f"{name}-tx"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=1)
    producer.flush(20)
    return producer


def test_life_of_a_transaction(shell: Shell, name: str, topic: str, producer: Producer) -> None:
    transactional_id = f"{name}-tx"
    rows = {row["transactional_id"]: row for row in shell.lines("transactions", "list")}
    assert rows[transactional_id]["state"] == "Ongoing"
    ongoing = shell.lines("transactions", "list", "--state", "Ongoing")
    assert rows[transactional_id] in ongoing
    [described] = shell.lines("transactions", "describe", transactional_id)
    assert described["state"] == "Ongoing"
    assert described["producer_id"] == rows[transactional_id]["producer_id"]
    assert described["partitions"] == [f"{topic}-1"]
    assert described["timeout_ms"] == 60_000
    assert 0 <= described["open_seconds"] < 60
    assert described["started"].startswith(time.strftime("%Y-"))
    shown = shell.terminal("transactions", "describe", transactional_id)
    assert f"{topic}-1" in shown
    assert transactional_id in shell.terminal("transactions", "list")

    assert shell.lines("consume", topic) == []
    assert len(shell.lines("consume", topic, "--isolation", "uncommitted")) == 1
    producer.commit_transaction(20)
    described = eventually(
        lambda: shell.lines("transactions", "describe", transactional_id)[0],
        lambda seen: seen["state"] == "CompleteCommit",
    )
    assert (
        described["partitions"],
        described["open_seconds"] is None or described["started"] is not None,
    ) == (
        [],
        True,
    )
    assert len(shell.lines("consume", topic)) == 1


def test_errors(shell: Shell, producer: Producer) -> None:
    producer.abort_transaction(20)
    assert shell.error("transactions", "describe", "no-such") == "there is no transactional id no-such"
    assert shell.error("transactions", "list", "--state", "Asleep") == "there is no state Asleep"
