"""What queues keep on disk, through stops, crashes, and disks that fail."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest

from headwater.broker.queues import lane as lane_module
from headwater.core.amqp import AmqpError
from headwater.net.amqp import lane_log as lane_log_module
from headwater.net.amqp import positions as positions_module
from headwater.net.amqp.lane_log import LaneLog

from .queue_node import Receiver, Shelf, message, number_of


@pytest.fixture
async def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    made = Shelf(tmp_path / "data", monkeypatch)
    made.start()
    return made


def fresh(*numbers: int) -> list[tuple[int, bool]]:
    return [(number, False) for number in numbers]


def again(*numbers: int) -> list[tuple[int, bool]]:
    return [(number, True) for number in numbers]


def log_of(shelf: Shelf, name: str = "q") -> LaneLog:
    store = shelf.queue(name).lane.store
    assert isinstance(store, LaneLog)
    return store


def files_of(shelf: Shelf, name: str = "q") -> list[Path]:
    return sorted(log_of(shelf, name).log.directory.glob("*.log"))


# -- stops and crashes ---------------------------------------------------------------------------


async def test_persistent_messages_of_a_durable_queue_survive_a_stop(shelf: Shelf) -> None:
    shelf.declare("q")
    shelf.publish([message(1), message(2, delivery_mode=1), message(3)])
    await shelf.restart()
    assert shelf.rest() == fresh(1, 3)
    await shelf.stop()


async def test_after_a_clean_stop_it_is_known_exactly_what_was_delivered_and_settled(shelf: Shelf) -> None:
    shelf.declare("q")
    shelf.publish(message(number) for number in range(10))
    receiver = shelf.consume(prefetch=6)
    shelf.acknowledge(receiver, 2)  # two more are delivered
    receiver.unacked.append(receiver.unacked.pop(0))
    shelf.acknowledge(receiver, 1)  # and one more, for number 3
    await shelf.restart()
    assert shelf.rest() == again(2, 4, 5, 6, 7, 8) + fresh(9)
    await shelf.restart()
    assert shelf.rest() == []
    await shelf.stop()


async def test_a_kill_flags_at_least_what_was_delivered(shelf: Shelf) -> None:
    shelf.declare("q")
    shelf.publish(message(number) for number in range(10))
    receiver = shelf.consume(prefetch=4)
    assert receiver.numbers == [0, 1, 2, 3]
    shelf.kill()
    assert shelf.rest()[:4] == again(0, 1, 2, 3)
    assert len(shelf.queue()) == 0
    await shelf.stop()


async def test_what_was_acknowledged_and_written_does_not_come_back(shelf: Shelf) -> None:
    shelf.declare("q")
    shelf.publish(message(number) for number in range(8))
    receiver = shelf.consume()
    receiver.unacked.insert(0, receiver.unacked.pop(5))
    shelf.acknowledge(receiver, 3)
    shelf.service.storage.positions.flush()
    shelf.acknowledge(receiver, 1)  # this one is not written in time
    shelf.kill()
    assert [number for number, _ in shelf.rest()] == [2, 3, 4, 6, 7]
    await shelf.stop()


async def test_a_purge_survives(shelf: Shelf) -> None:
    shelf.declare("q")
    shelf.publish(message(number) for number in range(4))
    receiver = shelf.consume(prefetch=1)
    assert shelf.queue().purge() == 3
    shelf.service.storage.positions.flush()
    assert receiver.numbers == [0]
    shelf.kill()
    assert shelf.rest() == again(0)
    await shelf.stop()


@pytest.mark.parametrize("seed", range(25))
async def test_power_loss_loses_nothing_confirmed_and_brings_back_nothing_synced(
    shelf: Shelf, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_log_module, "_SEGMENT", 4000)
    monkeypatch.setattr(positions_module, "_COMPACT_FROM", 2000)
    chance = random.Random(seed)
    shelf.declare("q")
    await shelf.settle()
    number = 0
    safe: set[int] = set()
    """What was confirmed and not acknowledged."""
    gone: set[int] = set()
    """What was acknowledged, and synced since."""
    for _ in range(4):
        writer, reader = Receiver(), shelf.consume(prefetch=chance.choice([3, 50]))
        first, acknowledged = number, set[int]()
        for _ in range(chance.randint(1, 12)):
            count = chance.randint(1, 9)
            size = chance.choice([5, 200])
            shelf.publish(
                (message(each, size=size) for each in range(number, number + count)), receiver=writer
            )
            number += count
            if chance.random() < 0.5:
                await shelf.sync()
            chance.shuffle(reader.unacked)
            some = chance.randint(0, 8)
            acknowledged |= {number_of(each) for each in reader.unacked[:some]}
            shelf.acknowledge(reader, some)
            if chance.random() < 0.3:
                await shelf.settle()
                gone |= acknowledged
        assert all(failure is None for _, failure in writer.confirmed)
        tag = max((tag for tag, _ in writer.confirmed), default=0)
        safe = (safe | set(range(first, first + tag))) - acknowledged
        shelf.crash(chance)
        reader = shelf.consume()
        left = set(reader.numbers)
        assert reader.numbers == sorted(left), "in order, each once"
        assert safe <= left, "what was confirmed is there"
        assert not gone & left, "what was settled is gone"
        shelf.crash()  # nothing has happened since but deliveries
        safe = left
        assert len(shelf.queue()) == len(left)
    await shelf.stop()


async def test_offsets_that_a_power_loss_took_back_are_not_settled_for_others(shelf: Shelf) -> None:
    """Positions may be on disk while the log that they are about is not."""
    shelf.declare("q")
    shelf.publish([message(0)])
    await shelf.settle()
    shelf.publish(message(number) for number in range(1, 9))
    shelf.acknowledge(shelf.consume())
    shelf.service.storage.positions.flush()
    shelf.service.storage.positions.log.sync()
    before = log_of(shelf).end
    shelf.crash()
    assert log_of(shelf).end < before
    writer = Receiver()
    shelf.publish((message(number) for number in range(20, 30)), receiver=writer)
    await shelf.sync()
    assert writer.confirmed == [(10, None)]
    shelf.crash()
    assert [number for number, _ in shelf.rest()] == list(range(20, 30))
    await shelf.stop()


async def test_positions_are_written_anew_and_a_crash_in_between_changes_nothing(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.declare("q")
    shelf.publish(message(number) for number in range(300))
    receiver = shelf.consume()
    receiver.unacked = receiver.unacked[::2] + receiver.unacked[1::2]
    shelf.acknowledge(receiver, 150)
    await shelf.settle()
    positions = shelf.service.storage.positions
    monkeypatch.setattr(type(positions.log), "delete_before", lambda log, offset: offset)
    positions.compact()
    monkeypatch.undo()
    shelf.crash()
    assert [number for number, _ in shelf.rest()] == list(range(1, 300, 2))
    await shelf.stop()


async def test_more_ranges_than_a_batch_holds(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions_module, "_RANGES", 10)
    monkeypatch.setattr(positions_module, "_BATCH_BYTES", 300)
    shelf.declare("q")
    shelf.publish(message(number) for number in range(500))
    receiver = shelf.consume()
    receiver.unacked = receiver.unacked[::2] + receiver.unacked[1::2]
    shelf.acknowledge(receiver, 250)
    shelf.service.storage.positions.flush()
    shelf.kill()
    assert [number for number, _ in shelf.rest()] == list(range(1, 500, 2))
    await shelf.stop()


# -- a disk that fails ---------------------------------------------------------------------------


async def test_a_full_disk_refuses_what_comes_and_loses_nothing_that_was_confirmed(shelf: Shelf) -> None:
    shelf.declare("q")
    writer = Receiver()
    shelf.publish([message(0)], receiver=writer)
    await shelf.sync()
    shelf.disk.full = True
    shelf.publish([message(1), message(2)], receiver=writer)
    assert writer.confirmed[0] == (1, None)
    assert writer.confirmed[1][0] == 3
    assert "no space left" in (writer.confirmed[1][1] or "")
    shelf.disk.full = False
    shelf.publish([message(3)], receiver=writer)
    await shelf.sync()
    assert writer.confirmed[2] == (4, None)
    shelf.kill()
    assert [number for number, _ in shelf.rest()] == [0, 3]
    await shelf.stop()


async def test_what_was_purged_before_its_write_failed_takes_nothing_else_along(shelf: Shelf) -> None:
    shelf.declare("q")
    shelf.publish([message(0)])
    await shelf.sync()
    for number in (1, 2):
        shelf.service.publish(shelf.queue(), message(number), 0)
    assert shelf.queue().purge() == 3
    shelf.disk.fail_write()
    shelf.service.end_turn()
    shelf.publish([message(3), message(4)])
    await shelf.settle()
    shelf.kill()
    assert [number for number, _ in shelf.rest()] == [3, 4]
    await shelf.stop()


async def test_a_failed_sync_stops_confirms_of_that_queue_and_of_no_other(
    shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    shelf.declare("q")
    shelf.declare("other")
    await shelf.sync()
    writer = Receiver()
    shelf.disk.fail_sync()
    shelf.publish([message(0)], receiver=writer)
    await shelf.sync()
    assert "syncing queue 'q' in vhost '/'-0 failed" in (writer.confirmed[0][1] or "")
    assert "acknowledges nothing until the broker is restarted" in caplog.text
    shelf.publish([message(1)], receiver=writer)
    await shelf.sync()
    assert writer.confirmed[1][1] is not None
    shelf.publish([message(2)], "other", receiver=writer)
    await shelf.sync()
    assert writer.confirmed[2] == (3, None)
    assert shelf.service.failed is None
    await shelf.stop()


async def test_acknowledgements_that_cannot_be_written_are_tried_again(shelf: Shelf) -> None:
    shelf.declare("q")
    shelf.publish(message(number) for number in range(5))
    receiver = shelf.consume()
    await shelf.settle()
    shelf.acknowledge(receiver, 3)
    positions = shelf.service.storage.positions
    shelf.disk.full = True
    with pytest.raises(Exception, match="no space left"):
        positions.flush()
    assert positions.dirty
    shelf.queue().purge()
    shelf.disk.full = False
    positions.flush()
    assert not positions._changed
    shelf.kill()
    assert [number for number, _ in shelf.rest()] == [3, 4]
    await shelf.stop()


# -- space ---------------------------------------------------------------------------------------


async def test_segments_go_when_all_in_them_is_settled(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_log_module, "_SEGMENT", 10_000)
    monkeypatch.setattr(lane_log_module, "_IDLE_SEGMENT", 5_000)
    shelf.declare("q")
    for number in range(40):
        shelf.publish([message(number, size=2000)])
    await shelf.sync()
    assert len(files_of(shelf)) > 5
    receiver = shelf.consume()
    held = receiver.unacked.pop(20)
    shelf.acknowledge(receiver)
    await shelf.settle()
    shelf.service.storage.shrink()
    sizes = sum(path.stat().st_size for path in files_of(shelf))
    assert 20 * 2000 <= sizes < 32 * 2000
    receiver.unacked = [held]
    shelf.acknowledge(receiver)
    await shelf.settle()
    shelf.service.storage.shrink()
    assert sum(path.stat().st_size for path in files_of(shelf)) == 0
    shelf.publish([message(99)])
    await shelf.restart()
    assert shelf.rest() == again(99)
    await shelf.stop()


async def test_what_has_no_place_in_memory_is_read_back_in_order(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_module, "_FLOOR", 2000)
    shelf.service.budget.limit = 0
    for name, durable in (("q", True), ("transient", False)):
        shelf.declare(name, durable=durable)
        for first in range(0, 3000, 100):
            shelf.publish((message(number) for number in range(first, first + 100)), name)
        await shelf.sync()
        queue = shelf.queue(name)
        assert queue.memory < 4000
        assert len(queue) == 3000
        assert shelf.rest(name) == fresh(*range(3000))
        assert len(queue) == queue.memory == queue.bytes == 0
    root = shelf.node.logs.path / "queues" / "transient"
    assert list(root.iterdir())
    await shelf.restart()
    assert not root.exists()
    await shelf.stop()


async def test_queues_with_nothing_in_them_have_no_log(shelf: Shelf) -> None:
    for number in range(50):
        shelf.declare(f"q{number}")
    shelf.publish([message(0, delivery_mode=1)], "q1")
    await shelf.restart()
    storage = shelf.service.storage
    assert len(shelf.service.queues) == 50
    assert not storage.lanes
    assert not storage.positions.places.keys() - {b"delayed"}
    assert not list((shelf.node.logs.path / "queues").iterdir())
    await shelf.stop()


# -- directories ---------------------------------------------------------------------------------


async def test_a_deleted_queue_leaves_nothing_behind(shelf: Shelf) -> None:
    shelf.declare("q")
    shelf.publish([message(0)])
    await shelf.settle()
    directory = log_of(shelf).log.directory.parent
    receiver = shelf.consume()
    shelf.delete()
    assert not directory.exists()
    receiver.unacked[0].consumer.queue.acknowledge(receiver.unacked[0])  # comes too late, and does no harm
    await shelf.settle()
    assert not shelf.service.storage.positions.places.keys() - {b"delayed"}
    await shelf.restart()
    assert not list(directory.parent.iterdir())
    assert not shelf.service.queues
    await shelf.stop()


async def test_a_deletion_that_a_power_loss_took_back_leaves_the_messages(shelf: Shelf) -> None:
    shelf.declare("q")
    shelf.publish([message(0), message(1)])
    shelf.acknowledge(shelf.consume(), 1)
    await shelf.settle()
    shelf.delete()
    root = shelf.node.logs.path / "queues"
    shelf.disk.sync_directory(root)  # the renamed directory is on disk, the deletion is not
    shelf.crash()
    assert [number for number, _ in shelf.rest()] == [1]
    await shelf.stop()


async def test_a_directory_of_no_queue_is_kept_aside(shelf: Shelf, caplog: pytest.LogCaptureFixture) -> None:
    await shelf.stop()
    stray = shelf.disk.root / "queues" / ("ab" * 16)
    shelf.disk.make_directory(stray)
    shelf.start()
    assert "belongs to no queue this broker knows" in caplog.text
    assert stray.with_name(stray.name + ".orphan").is_dir()
    await shelf.restart()
    assert stray.with_name(stray.name + ".orphan").is_dir()
    await shelf.stop()


# -- damage --------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", [0, 9, 100], ids=["offset", "length", "content"])
async def test_damage_in_one_log_costs_the_messages_in_it_and_no_others(
    shelf: Shelf, caplog: pytest.LogCaptureFixture, where: int
) -> None:
    for name in ("q", "other"):
        shelf.declare(name)
        for number in range(6):
            shelf.publish([message(number, size=500)], name)
    await shelf.sync()
    (path,) = files_of(shelf)
    await shelf.stop()
    data = bytearray(path.read_bytes())
    at = len(data) // 2 + where
    data[at : at + 4] = b"!!!!"
    path.write_bytes(data)
    with caplog.at_level(logging.ERROR):
        shelf.start()
        left = [number for number, _ in shelf.rest()]
    assert left == [0, 1, 2, 4, 5]
    assert "1 messages of queue 'q' in vhost '/' are lost" in caplog.text
    assert shelf.rest("other") == fresh(*range(6))
    shelf.publish([message(9)])
    await shelf.restart()
    assert shelf.rest() == fresh(9)
    await shelf.stop()


async def test_a_log_that_does_not_open_stops_neither_the_start_nor_other_queues(
    shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("q", "other"):
        shelf.declare(name)
        shelf.publish([message(1)], name)
    await shelf.sync()
    directory = log_of(shelf).log.directory
    await shelf.stop()
    aside = directory.with_name("aside")
    directory.rename(aside)
    directory.write_bytes(b"no directory")
    shelf.start()
    assert "queue 'q' in vhost '/' takes and gives no messages" in caplog.text
    writer = Receiver()
    assert not shelf.service.publish(shelf.queue(), message(2), 0)
    with pytest.raises(AmqpError, match="queue 'q' in vhost '/' cannot be served"):
        shelf.consume()
    with pytest.raises(AmqpError, match="cannot be served"):
        shelf.rest()
    shelf.publish([message(2)], "other", receiver=writer)
    await shelf.sync()
    assert writer.confirmed == [(1, None)]
    assert shelf.rest("other") == fresh(1, 2)
    await shelf.stop()
    directory.unlink()
    aside.rename(directory)
    shelf.start()
    assert shelf.rest() == fresh(1)
    await shelf.stop()


@pytest.mark.parametrize("tail", ["torn", "zeros"])
async def test_tails_that_a_crash_left_are_cut(shelf: Shelf, tail: str) -> None:
    shelf.declare("q")
    shelf.publish(message(number) for number in range(5))
    await shelf.settle()
    shelf.acknowledge(shelf.consume(), 2)
    await shelf.settle()
    paths = [*files_of(shelf), *(shelf.service.storage.positions.log.directory.glob("*.log"))]
    shelf._end()
    for path in paths:
        with path.open("ab") as file:
            file.write(b"\0" * 5000 if tail == "zeros" else path.read_bytes()[:40])
    shelf.start()
    assert [number for number, _ in shelf.rest()] == [2, 3, 4]
    await shelf.stop()
