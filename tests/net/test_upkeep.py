"""Retention and compaction by a node, with the cleaner in its own process."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from headwater.broker.topics import NewTopic
from headwater.core.settings import Value
from headwater.log.errors import OffsetOutOfRange
from headwater.log.partition import PartitionLog
from headwater.net.node import Node
from headwater.record.batch import batches, read_header
from headwater.record.records import Record, decode_batch, encode_batch
from headwater.testing.clock import ManualClock

DAY = 24 * 3600 * 1000
CONFIG = {
    "log.retention.check.interval.ms": "1000000",
    "log.cleaner.backoff.ms": "1000000",
}


def write(log: PartitionLog, key: bytes, value: bytes, now_ms: int) -> int:
    batch = encode_batch([Record(0, now_ms, key, value)])
    return log.append(memoryview(batch), read_header(batch), now_ms)


def contents(log: PartitionLog) -> dict[int, Record]:
    """Return every record that a reader sees, by offset."""
    found: dict[int, Record] = {}
    offset = log.start_offset
    while offset < log.high_watermark:
        data = log.read(offset, 1000)
        for position, header in batches(data):
            assert header.base_offset <= offset
            found.update({record.offset: record for record in decode_batch(data, position)})
            offset = header.last_offset + 1
    return found


def newest(records: dict[int, Record]) -> dict[bytes | None, Record]:
    return {record.key: record for record in records.values()}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest_asyncio.fixture
async def node(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Node]:
    node = Node(tmp_path / "data", clock, CONFIG, synced=True)
    node.open()
    node.start()
    yield node
    await node.close()


async def topic(node: Node, name: str = "orders", **settings: str) -> PartitionLog:
    configs = {key.replace("_", "."): value for key, value in settings.items()}
    _, records = node.topics.create(NewTopic(name, 1, 1, configs=configs))
    await node.commit_topics(records)
    log = node.logs.get(name, 0)
    assert log is not None
    # Smaller than a topic may ask for, so that a test needs few records.
    log.config = replace(log.config, segment_bytes=600, index_interval_bytes=100)
    return log


def fill(log: PartitionLog, clock: ManualClock, keys: int = 5, rounds: int = 20) -> None:
    for turn in range(rounds):
        for key in range(keys):
            write(log, b"key-%d" % key, b"%d" % turn, clock.wall_ms())
    log.roll()
    log.sync()


async def cleaner_pid(node: Node) -> int:
    for _ in range(1000):
        if node.upkeep.cleaner_pid is not None:
            return node.upkeep.cleaner_pid
        await asyncio.sleep(0.01)
    raise AssertionError("the cleaner was not started")


async def test_what_has_expired_is_deleted_and_the_rest_is_not(node: Node, clock: ManualClock) -> None:
    log = await topic(node, retention_ms=str(7 * DAY))
    fill(log, clock)
    clock.advance(5 * DAY)
    fill(log, clock)
    clock.advance(2 * DAY)
    await node.upkeep.retain_all()
    assert log.start_offset == 0
    clock.advance(1000)
    await node.upkeep.retain_all()
    assert log.start_offset == 100
    with pytest.raises(OffsetOutOfRange):
        log.read(99, 100)
    assert len(contents(log)) == 100
    assert log.segments[0].base_offset == 100, "the files are gone"


async def test_a_growing_segment_that_expired_is_rolled_and_deleted(node: Node, clock: ManualClock) -> None:
    log = await topic(node, retention_ms="1000")
    write(log, b"a", b"1", clock.wall_ms())
    log.sync()
    clock.advance(1001)
    await node.upkeep.retain_all()
    assert (log.start_offset, log.end_offset, log.size_bytes()) == (1, 1, 0)
    assert write(log, b"a", b"2", clock.wall_ms()) == 1


async def test_a_new_setting_counts_at_the_next_check(node: Node, clock: ManualClock) -> None:
    log = await topic(node, retention_ms=str(7 * DAY))
    fill(log, clock)
    clock.advance(DAY)
    await node.upkeep.retain_all()
    assert log.start_offset == 0
    log.config = replace(log.config, retention_ms=1000)
    await node.upkeep.retain_all()
    assert log.start_offset == 100


async def test_a_log_that_is_too_large_is_cut_as_it_grows(node: Node, clock: ManualClock) -> None:
    log = await topic(node, retention_bytes="2000")
    fill(log, clock, rounds=40)
    assert log.size_bytes() > 5000
    deadline = asyncio.get_running_loop().time() + 10
    while log.size_bytes() >= 2000 + 600:
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.05)
    assert log.size_bytes() >= 2000
    assert len(contents(log)) == log.end_offset - log.start_offset


async def test_a_clock_that_jumps_a_day_and_back_deletes_nothing(node: Node, clock: ManualClock) -> None:
    log = await topic(node, retention_ms=str(DAY // 2))
    fill(log, clock)
    await node.upkeep.retain_all()
    clock.jump(DAY)
    for _ in range(5):
        await node.upkeep.retain_all()
        clock.advance(300_000)
    clock.jump(-2 * DAY)
    await node.upkeep.retain_all()
    clock.jump(DAY)
    await node.upkeep.retain_all()
    assert log.start_offset == 0


async def test_a_clock_found_a_day_ahead_at_the_start_deletes_nothing(
    tmp_path: Path, clock: ManualClock
) -> None:
    for jump in (0, DAY):
        clock.jump(jump)
        node = Node(tmp_path / "data", clock, CONFIG, synced=True)
        node.open()
        node.start()
        if not jump:
            log = await topic(node, retention_ms=str(DAY // 2))
            fill(log, clock)
        await node.upkeep.retain_all()
        [log] = node.logs.of_topic("orders", 1)
        assert log.start_offset == 0
        await node.close()


async def test_a_compacted_topic_is_compacted(node: Node, clock: ManualClock) -> None:
    log = await topic(node, cleanup_policy="compact")
    fill(log, clock)
    before = contents(log)
    reader = asyncio.create_task(_read_over_and_over(log, newest(before).keys()))
    await node.upkeep.compact_all()
    reader.cancel()
    assert contents(log) == {record.offset: record for record in newest(before).values()}
    assert node.upkeep.cleaner_pid is None, "it ends when there is nothing to do"
    assert len(list(log.directory.glob("*.log"))) == len(log.segments) == 2
    assert not list(log.directory.glob("*.cleaned"))
    size = log.size_bytes()
    await node.upkeep.compact_all()
    assert log.size_bytes() == size


async def _read_over_and_over(log: PartitionLog, keys: object) -> None:
    while True:
        assert newest(contents(log)).keys() == keys
        await asyncio.sleep(0)


async def test_compact_and_delete_do_both(node: Node, clock: ManualClock) -> None:
    log = await topic(node, cleanup_policy="compact,delete", retention_ms=str(DAY))
    fill(log, clock)
    await node.upkeep.compact_all()
    assert len(contents(log)) == 5
    clock.advance(2 * DAY)
    await node.upkeep.retain_all()
    assert contents(log) == {}
    assert log.start_offset == 100


async def test_how_far_a_log_is_compacted_outlives_a_restart(
    node: Node, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await topic(node, cleanup_policy="compact")
    fill(log, clock)
    await node.upkeep.compact_all()
    node.upkeep._cleaned.clear()
    monkeypatch.setattr(node.upkeep, "_clean", None)  # a job would fail
    await node.upkeep.compact_all()


async def test_a_cleaner_that_is_killed_does_no_harm(node: Node, clock: ManualClock) -> None:
    log = await topic(node, cleanup_policy="compact")
    fill(log, clock)
    before = contents(log)
    node.settings["log.cleaner.io.max.bytes.per.second"] = 100.0  # so slow that it is met at work
    work = asyncio.create_task(node.upkeep.compact_all())
    os.kill(await cleaner_pid(node), signal.SIGKILL)
    await work
    assert contents(log) == before
    node.settings["log.cleaner.io.max.bytes.per.second"] = 1e300
    await node.upkeep.compact_all()
    assert len(contents(log)) == 5
    assert not list(log.directory.glob("*.cleaned"))


async def test_a_damaged_log_is_left_alone_and_the_others_are_not(node: Node, clock: ManualClock) -> None:
    damaged = await topic(node, "damaged", cleanup_policy="compact")
    other = await topic(node, "other", cleanup_policy="compact")
    for log in (damaged, other):
        fill(log, clock)
    with damaged.segments[0].path.open("r+b") as file:
        file.seek(70)
        file.write(b"\xff\xff")
    size = damaged.size_bytes()
    await node.upkeep.compact_all()
    assert damaged.size_bytes() == size
    assert len(contents(other)) == 5


async def test_a_node_stops_while_the_cleaner_works(tmp_path: Path, clock: ManualClock) -> None:
    settings: dict[str, Value] = {"log.cleaner.io.max.bytes.per.second": 100.0}
    node = Node(tmp_path / "data", clock, CONFIG | {"log.cleaner.backoff.ms": "0"}, synced=True)
    node.settings.update(settings)
    node.open()
    node.start()
    log = await topic(node, cleanup_policy="compact")
    fill(log, clock)
    pid = await cleaner_pid(node)
    await node.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
