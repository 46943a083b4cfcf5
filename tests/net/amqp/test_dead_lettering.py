"""Dead letters: their history, where they go, and that none is lost between two queues."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headwater.broker.queues.queue import Reason
from headwater.record.amqp.message import Message
from headwater.record.amqp.tables import Table

from .queue_node import Receiver, Shelf, message, number_of

TO_DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}


@pytest.fixture
async def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    made = Shelf(tmp_path / "data", monkeypatch)
    made.start()
    made.declare("dead")
    return made


def reject(shelf: Shelf, name: str = "q") -> None:
    """Take what is next from a queue, and reject it."""
    receiver = shelf.consume(name, prefetch=1)
    (taken,) = receiver.unacked
    queue = taken.consumer.queue
    queue.remove_consumer(taken.consumer)
    queue.reject(taken)
    shelf.service.touch(queue)
    shelf.service.end_turn()


def letters(shelf: Shelf, name: str = "dead") -> list[Message]:
    receiver = shelf.consume(name)
    queue = shelf.queue(name)
    queue.remove_consumer(queue.consumers.all[-1])
    return receiver.unacked


def headers_of(letter: Message) -> Table:
    return letter.properties().headers or {}


async def test_a_rejected_message_tells_where_it_died(shelf: Shelf) -> None:
    shelf.declare("q", TO_DEAD)
    shelf.publish([message(1, expiration="60000", headers={"CC": ["other"], "mine": 7}, message_id="m")])
    shelf.clock.advance(1500)
    reject(shelf)
    (letter,) = letters(shelf)
    properties = letter.properties()
    assert (letter.exchange, letter.routing_key, number_of(letter)) == ("", "dead", 1)
    assert properties.expiration is None, "or it would expire again"
    assert (properties.delivery_mode, properties.message_id) == (2, "m")
    now = datetime.fromtimestamp(shelf.clock.wall_ms() // 1000, UTC)
    assert properties.headers == {
        "mine": 7,
        "x-death": [
            {
                "count": 1, "reason": "rejected", "queue": "q", "time": now, "exchange": "",
                "routing-keys": ["q", "other"], "original-expiration": "60000",
            }
        ],
        "x-first-death-reason": "rejected", "x-first-death-queue": "q", "x-first-death-exchange": "",
    }  # fmt: skip
    await shelf.stop()


async def test_without_a_key_of_its_own_the_letter_goes_where_the_message_and_its_copies_did(
    shelf: Shelf,
) -> None:
    shelf.declare("q", {"x-dead-letter-exchange": "amq.direct"})
    for key in ("q", "copy"):
        shelf.declare(f"dead-{key}")
        shelf.service.change(
            shelf.service.definitions.bind("/", "amq.direct", f"dead-{key}", "queue", key, {}, owner=1)
        )
    shelf.publish([message(1, headers={"CC": ["copy"]})])
    reject(shelf)
    for key in ("q", "copy"):
        (letter,) = letters(shelf, f"dead-{key}")
        assert headers_of(letter)["CC"] == ["copy"]
        assert letter.routing_key == "q"
    await shelf.stop()


async def test_the_same_death_again_counts_and_comes_first(shelf: Shelf) -> None:
    shelf.declare("q", TO_DEAD)
    deaths: list[Any] = [
        {"queue": "other", "reason": "expired", "count": 3},
        {"queue": "q", "reason": "rejected", "count": 41, "exchange": "first"},
        "what a client put there",
        {"queue": "other", "reason": "expired", "count": 9},
    ]
    shelf.publish([message(1, headers={"x-death": deaths, "x-first-death-queue": "first"})])
    reject(shelf)
    headers = headers_of(letters(shelf)[0])
    assert headers["x-death"] == [
        {"queue": "q", "reason": "rejected", "count": 42, "exchange": "first"},
        {"queue": "other", "reason": "expired", "count": 3},
        "what a client put there",
    ]
    assert headers["x-first-death-queue"] == "first"
    assert "x-first-death-reason" not in headers
    await shelf.stop()


@pytest.mark.parametrize(
    "history", ["text", 5, {"queue": "q"}, [5], [{"queue": "q", "reason": "rejected", "count": "x"}]]
)
async def test_a_history_that_is_none_is_begun_anew(shelf: Shelf, history: Any) -> None:
    shelf.declare("q", TO_DEAD)
    shelf.publish([message(1, headers={"x-death": history})])
    reject(shelf)
    assert headers_of(letters(shelf)[0])["x-death"][0]["count"] == 1
    await shelf.stop()


async def test_properties_that_do_not_read_cost_the_message_and_nothing_else(
    shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    shelf.declare("q", {**TO_DEAD, "x-max-length": 1})
    broken = message(1, headers={"a": "b"})
    broken.frames = broken.frames.replace(b"\x01aS", b"\x01a?")
    shelf.publish([broken, message(2), message(3)])
    assert [number_of(letter) for letter in letters(shelf)] == [2]
    assert "a message of queue 'q' in vhost '/' could not be dead-lettered" in caplog.text
    assert shelf.rest() == [(3, False)]
    await shelf.stop()


@pytest.mark.parametrize("exchange", ["nowhere", "amq.direct"])
async def test_where_nothing_takes_it_the_message_is_gone(shelf: Shelf, exchange: str) -> None:
    shelf.declare("q", {"x-dead-letter-exchange": exchange})
    shelf.publish([message(1)])
    reject(shelf)
    await shelf.sync()
    await shelf.settle()
    shelf.kill()
    assert not len(shelf.queue())
    await shelf.stop()


# -- cycles --------------------------------------------------------------------------------------


async def test_what_goes_round_by_itself_is_dropped(shelf: Shelf, caplog: pytest.LogCaptureFixture) -> None:
    for name, following in (("a", "b"), ("b", "a")):
        shelf.declare(
            name,
            {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": following, "x-message-ttl": 10},
        )
    shelf.publish([message(1), message(2)], "a")
    for _ in range(4):
        shelf.clock.advance(20)
        for name in "ab":
            queue = shelf.queue(name)
            queue.expire(shelf.clock.wall_ms())
            shelf.service.dead_letters.bury(queue)
        shelf.service.end_turn()
    assert len(shelf.queue("a")) == len(shelf.queue("b")) == 0
    assert caplog.text.count("go round without anybody rejecting them: a < b < a") == 1
    await shelf.stop()


async def test_what_somebody_rejects_may_go_round(shelf: Shelf) -> None:
    shelf.declare("q", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"})
    shelf.publish([message(1)])
    for _ in range(3):
        reject(shelf)
    (letter,) = letters(shelf, "q")
    assert headers_of(letter)["x-death"][0]["count"] == 3
    await shelf.stop()


async def test_a_rejection_on_the_way_breaks_the_cycle_until_the_next_round(shelf: Shelf) -> None:
    """Only what has happened since the message was last here counts."""
    shelf.declare("q", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q", "x-max-length": 1})
    entry = {"queue": "q", "reason": "expired", "count": 1}
    rejected = {"queue": "else", "reason": "rejected", "count": 1}
    shelf.publish([message(1, headers={"x-death": [rejected, entry]}), message(2)])
    assert shelf.rest() == [(2, False)], "died just now, of its length, and would come back at once"
    await shelf.stop()


async def test_a_long_chain_of_full_queues_is_no_deep_recursion(shelf: Shelf) -> None:
    count = 250
    for number in range(count):
        shelf.declare(
            f"q{number}",
            {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"q{number + 1}", "x-max-length": 0},
        )
    shelf.declare(f"q{count}")
    shelf.publish([message(1, delivery_mode=1)], "q0")
    assert len(headers_of(letters(shelf, f"q{count}")[0])["x-death"]) == count
    await shelf.stop()


# -- the disk ------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [Reason.REJECTED, Reason.MAX_LENGTH, Reason.EXPIRED])
async def test_the_letter_is_on_disk_before_the_message_is_settled(shelf: Shelf, how: str) -> None:
    limits = {Reason.MAX_LENGTH: {"x-max-length": 1}, Reason.EXPIRED: {"x-message-ttl": 1000}}
    shelf.declare("q", {**TO_DEAD, **limits.get(how, {})})
    shelf.publish([message(1)])
    await shelf.settle()
    if how == Reason.REJECTED:
        reject(shelf)
    elif how == Reason.MAX_LENGTH:
        shelf.publish([message(2)])
    else:
        shelf.clock.advance(5000)
        shelf.service._sweep()
    positions = shelf.service.storage.positions
    positions.flush()
    positions.log.sync()
    shelf.crash()
    assert len(shelf.queue()) == 1, "the letter was not synced, so the message is still there"
    await shelf.stop()


async def test_in_the_end_it_is_in_one_place(shelf: Shelf) -> None:
    shelf.declare("q", TO_DEAD)
    shelf.publish([message(1), message(2)])
    reject(shelf)
    await shelf.sync()
    await shelf.settle()
    shelf.crash()
    assert [number for number, _ in shelf.rest()] == [2]
    assert [number for number, _ in shelf.rest("dead")] == [1]
    await shelf.stop()


async def test_a_stop_in_between_leaves_it_in_one_place(shelf: Shelf) -> None:
    shelf.declare("q", TO_DEAD)
    shelf.publish([message(1)])
    reject(shelf)
    await shelf.restart()
    assert len(shelf.queue()) == 0
    assert [number for number, _ in shelf.rest("dead")] == [1]
    await shelf.stop()


async def test_a_letter_that_is_not_written_leaves_the_message_where_it_was(shelf: Shelf) -> None:
    shelf.declare("q", TO_DEAD)
    writer = Receiver()
    shelf.publish([message(1)], receiver=writer)
    await shelf.settle()
    shelf.disk.full = True
    reject(shelf)
    shelf.disk.full = False
    await shelf.settle()
    shelf.kill()
    assert [number for number, _ in shelf.rest()] == [1]
    await shelf.stop()
