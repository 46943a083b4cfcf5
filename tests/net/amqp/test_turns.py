"""Whoever sends or takes very much lets the others have their turns in between."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pamqp import commands

from headwater.net.access import AccessOptions
from headwater.net.amqp.connection import AmqpConnection
from headwater.net.amqp.listener import AmqpListener
from headwater.wire.amqp.constants import HEARTBEAT_FRAME, PROTOCOL_HEADER
from headwater.wire.amqp.methods import encode_method

from .queue_node import Receiver, Shelf, message


@pytest.fixture
async def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    made = Shelf(tmp_path / "data", monkeypatch)
    made.start()
    return made


class Transport:
    """A socket that only knows whether it is read from."""

    def __init__(self) -> None:
        self.reads = True

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def __getattr__(self, _name: str) -> Any:
        return lambda *_values, **_options: None


async def test_a_connection_that_sends_much_is_read_from_again_when_the_others_were(shelf: Shelf) -> None:
    connection = AmqpConnection(AmqpListener(shelf.node, AccessOptions(), "1"))
    transport: Any = Transport()
    connection.connection_made(transport)
    start_ok = commands.Connection.StartOk(mechanism="PLAIN", response="\0guest\0guest")
    connection.data_received(PROTOCOL_HEADER + encode_method(0, start_ok) + HEARTBEAT_FRAME * 1000)
    assert transport.reads
    connection.data_received(HEARTBEAT_FRAME * 20_000)
    assert not transport.reads
    await asyncio.sleep(0)
    assert transport.reads
    connection.data_received(HEARTBEAT_FRAME * 20_000)
    connection.hold()
    await asyncio.sleep(0)
    assert not transport.reads
    connection.go_on()
    assert transport.reads
    connection.connection_lost(None)
    await shelf.stop()


async def test_a_queue_that_gives_much_goes_on_in_the_next_turn(shelf: Shelf) -> None:
    shelf.declare("q", durable=False)
    shelf.publish(message(number) for number in range(10_000))
    one, other = shelf.consume(), shelf.consume()
    given = len(one.numbers) + len(other.numbers)
    assert 0 < given < 10_000
    for _ in range(5):
        await asyncio.sleep(0)
    assert sorted(one.numbers + other.numbers) == list(range(10_000))
    await shelf.stop()


def reject_all(shelf: Shelf, receiver: Receiver) -> None:
    for each in receiver.unacked:
        each.consumer.queue.reject(each)
    shelf.service.touch(shelf.queue())
    shelf.service.end_turn()


async def test_very_many_dead_letters_are_written_in_several_turns(shelf: Shelf) -> None:
    shelf.declare("dead")
    shelf.declare("q", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    shelf.publish(message(number) for number in range(1000))
    reject_all(shelf, shelf.consume())
    assert 0 < len(shelf.queue("dead")) < 1000
    for _ in range(10):
        await asyncio.sleep(0)
    assert [number for number, _ in shelf.rest("dead")] == list(range(1000))
    await shelf.stop()


@pytest.mark.parametrize("end", ["stop", "commit"])
async def test_no_dead_letter_is_left_behind(shelf: Shelf, end: str) -> None:
    shelf.declare("dead")
    shelf.declare("q", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    shelf.publish(message(number) for number in range(1000))
    reject_all(shelf, shelf.consume())
    if end == "commit":
        shelf.service.write_all()
        assert len(shelf.queue("dead")) == 1000
    await shelf.restart()
    assert len(shelf.queue("q")) == 0
    assert [number for number, _ in shelf.rest("dead")] == list(range(1000))
    await shelf.stop()


async def test_what_died_is_forgotten_with_its_virtual_host(shelf: Shelf) -> None:
    shelf.declare("dead")
    shelf.declare("q", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    shelf.publish(message(number) for number in range(1000))
    receiver = shelf.consume()
    reject_all(shelf, receiver)
    del shelf.service.definitions.vhosts["/"]
    assert shelf.service.dead_letters.finish()
    assert not shelf.service.dead_letters.finish()
    await shelf.stop()
