"""How often a message was tried, through stops and crashes: what a delivery limit counts by."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.broker.queues.consumers import Consumer
from headwater.record.amqp.tables import Table

from .queue_node import Receiver, Shelf, message, number_of

COUNTING: Table = {
    "x-queue-type": "quorum",
    "x-delivery-limit": 3,
    "x-dead-letter-exchange": "",
    "x-dead-letter-routing-key": "dead",
}


@pytest.fixture
async def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    made = Shelf(tmp_path / "data", monkeypatch)
    made.start()
    made.declare("dead")
    made.declare("q", COUNTING)
    return made


def consume(shelf: Shelf, consumers: int) -> list[int]:
    """Let consumers come at once, each with room for one message, and return what they get."""
    queue, receivers = shelf.queue(), [Receiver() for _ in range(consumers)]
    for number, receiver in enumerate(receivers):
        queue.add_consumer(Consumer(queue, receiver, f"c{number}", prefetch=1))
    shelf.service.touch(queue)
    shelf.service.end_turn()
    return [number for receiver in receivers for number in receiver.numbers]


def give_back(shelf: Shelf, receiver: Receiver) -> None:
    """Give back what a consumer holds, so that it gets it again."""
    given, receiver.unacked = receiver.unacked, []
    for each in given:
        each.consumer.unacked -= 1
        each.consumer.queue.requeue(each)
        shelf.service.touch(shelf.queue())
    shelf.service.end_turn()


@pytest.mark.parametrize("end", ["stop", "kill", "compaction"])
async def test_attempts_are_known_after_a_restart_until_the_message_is_settled(
    shelf: Shelf, end: str
) -> None:
    shelf.publish([message(1), message(2)])
    receiver = shelf.consume(prefetch=1)
    give_back(shelf, receiver)
    give_back(shelf, receiver)
    await shelf.settle()
    if end == "compaction":
        shelf.service.storage.positions.compact()
    if end == "stop":
        await shelf.restart()
    else:
        shelf.kill()
    receiver = shelf.consume(prefetch=1)
    [held] = receiver.unacked
    assert (number_of(held), held.deliveries) == (1, 3)
    shelf.acknowledge(receiver)
    await shelf.settle()
    shelf.kill()
    assert [number for number, _ in shelf.rest()] == [2]
    assert not any(place.attempts for place in shelf.service.storage.positions.places.values())
    await shelf.stop()


@pytest.mark.parametrize("consumers", [1, 2])
async def test_a_message_that_takes_the_broker_along_dies_at_its_limit(shelf: Shelf, consumers: int) -> None:
    shelf.publish([message(1)])
    for _ in range(4):
        assert consume(shelf, consumers) == [1]
        await shelf.settle()
        shelf.kill()
    shelf.publish([message(2)])
    await shelf.sync()
    assert consume(shelf, consumers) == [2]
    assert [number for number, _ in shelf.rest("dead")] == [1]
    await shelf.stop()


async def test_a_get_passes_over_what_was_tried_too_often(shelf: Shelf) -> None:
    shelf.publish([message(1), message(2)])
    for _ in range(4):
        assert consume(shelf, 1) == [1]
        await shelf.settle()
        shelf.kill()
    assert [number for number, _ in shelf.rest()] == [2]
    await shelf.stop()
