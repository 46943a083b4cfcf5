"""What a node moves to its archive, and when."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from headwater.broker.topics import NewTopic
from headwater.core.errors import ApiError, ErrorCode
from headwater.log.partition import PartitionLog
from headwater.net.node import Node
from headwater.record.batch import TRANSACTIONAL, batches, read_header
from headwater.record.records import Record, decode_batch, encode_batch
from headwater.testing.clock import ManualClock

HOUR = 3600 * 1000
CONFIG = {
    "log.retention.check.interval.ms": "1000000",
    "remote.log.manager.task.interval.ms": "1000000",
}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cold(tmp_path: Path) -> Path:
    directory = tmp_path / "cold"
    directory.mkdir()
    return directory


async def started(tmp_path: Path, clock: ManualClock, **settings: str) -> Node:
    given = CONFIG | {"headwater.archive.dir": str(tmp_path / "cold")} | settings
    node = Node(tmp_path / "data", clock, given, synced=True)
    node.open()
    node.start()
    for log in node.logs:
        log.config = replace(log.config, segment_bytes=600)
    return node


@pytest_asyncio.fixture
async def node(tmp_path: Path, cold: Path, clock: ManualClock) -> AsyncIterator[Node]:
    node = await started(tmp_path, clock)
    yield node
    await node.close()


async def topic(node: Node, name: str = "orders", **settings: str) -> PartitionLog:
    configs = {"remote.storage.enable": "true"} | {
        key.replace("_", "."): value for key, value in settings.items()
    }
    _, records = node.topics.create(NewTopic(name, 1, 1, configs=configs))
    await node.commit_topics(records)
    log = node.logs.get(name, 0)
    assert log is not None
    log.config = replace(log.config, segment_bytes=600)
    return log


async def alter(node: Node, name: str = "orders", **settings: str) -> None:
    overrides = dict(node.topics.by_name[name].overrides)
    overrides |= {key.replace("_", "."): value for key, value in settings.items()}
    await node.commit_topics(node.topics.alter_topic(name, overrides))


def fill(log: PartitionLog, clock: ManualClock, records: int = 40) -> None:
    for number in range(records):
        batch = encode_batch([Record(0, clock.wall_ms(), b"k", b"%050d" % number)])
        log.append(memoryview(batch), read_header(batch), clock.wall_ms())
    log.sync()


def offsets(log: PartitionLog) -> list[int]:
    found: list[int] = []
    while (offset := found[-1] + 1 if found else log.start_offset) < log.high_watermark:
        data = log.read(offset, 1000)
        found += [r.offset for at, _ in batches(data) for r in decode_batch(data, at) if r.offset >= offset]
    return found


def archived_files(cold: Path) -> list[Path]:
    # Unlike `rglob`, it passes over a directory that is removed meanwhile.
    walked = os.walk(cold)
    return sorted(
        Path(directory, name) for directory, _, names in walked for name in names if name.endswith(".log")
    )


def unfinished(cold: Path) -> list[Path]:
    return list(cold.rglob("*.new"))


def unmount(cold: Path) -> Path:
    """Take the archive away, and leave the directory that it was mounted on."""
    away = cold.rename(cold.with_name("away"))
    cold.mkdir()
    return away


def mount(away: Path, cold: Path) -> None:
    cold.rmdir()  # which fails where something is in it
    away.rename(cold)


async def eventually(look: Callable[[], bool]) -> None:
    for _ in range(500):
        if look():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to be")


async def test_what_is_too_much_moves_and_stays_readable(node: Node, clock: ManualClock, cold: Path) -> None:
    log = await topic(node, local_retention_bytes="1500")
    fill(log, clock)
    await node.upkeep.archive_all()
    assert 1500 <= log.local_bytes() < 1500 + 600
    assert log.archived
    assert len(archived_files(cold)) == len(log.archived) == node.upkeep.archiving.segments_moved
    assert archived_files(cold)[0].parents[2].name == node.cluster_id
    assert offsets(log) == list(range(40))


async def test_what_is_too_old_moves_the_growing_segment_included(node: Node, clock: ManualClock) -> None:
    log = await topic(node, local_retention_ms=str(HOUR))
    fill(log, clock)
    await node.upkeep.archive_all()
    assert log.archived == []
    clock.advance(HOUR + 1)
    await node.upkeep.archive_all()
    log.sync()
    await node.upkeep.archive_all()
    assert (log.local_start_offset, log.local_bytes()) == (40, 0)
    assert offsets(log) == list(range(40))
    fill(log, clock, 1)
    assert offsets(log) == list(range(41))


async def test_nothing_moves_unless_local_retention_says_so(node: Node, clock: ManualClock) -> None:
    logs = [
        await topic(node),
        await topic(node, "plain", remote_storage_enable="false", local_retention_bytes="0"),
    ]
    for log in logs:
        fill(log, clock)
    clock.advance(HOUR)
    await node.upkeep.archive_all()
    assert [log.archived for log in logs] == [[], []]


async def test_an_open_transaction_holds_back_what_comes_after_it(node: Node, clock: ManualClock) -> None:
    log = await topic(node, local_retention_bytes="0")
    fill(log, clock, 10)
    batch = encode_batch(
        [Record(0, clock.wall_ms(), b"k", b"open")],
        attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0, base_sequence=0,
    )  # fmt: skip
    at = log.append(memoryview(batch), read_header(batch), clock.wall_ms())
    fill(log, clock, 30)
    await node.upkeep.archive_all()
    assert log.archived
    assert log.local_start_offset <= at
    log.append_marker(7, 0, commit=False, coordinator_epoch=0, now_ms=clock.wall_ms())
    log.sync()
    await node.upkeep.archive_all()
    assert log.local_start_offset > at
    assert [ended.first_offset for ended in log.read_committed(at, 100)[1]] == [at]


async def test_retention_counts_and_deletes_what_is_in_the_archive(
    node: Node, clock: ManualClock, cold: Path
) -> None:
    log = await topic(node, local_retention_bytes="600", retention_bytes="2500")
    log.config = replace(log.config, retention_bytes=-1)
    fill(log, clock)
    await node.upkeep.archive_all()
    before = len(archived_files(cold))
    log.config = replace(log.config, retention_bytes=2500)
    await node.upkeep.retain_all()
    assert 2500 <= log.size_bytes() < 2500 + 600
    assert log.start_offset == log.segments[0].base_offset > 0
    assert log.segments[0].archive is not None
    await eventually(lambda: len(archived_files(cold)) == len(log.archived))
    assert len(archived_files(cold)) == len(log.archived) < before
    assert offsets(log) == list(range(log.start_offset, 40))


async def test_no_more_moves_where_copying_is_disabled(node: Node, clock: ManualClock) -> None:
    log = await topic(node, remote_log_copy_disable="true")
    log.config = replace(log.config, local_retention_bytes=0)
    fill(log, clock)
    await node.upkeep.archive_all()
    assert log.archived == []


async def test_a_topic_that_is_not_archived_any_more_begins_with_what_never_moved(
    node: Node, clock: ManualClock, cold: Path
) -> None:
    log = await topic(node, local_retention_bytes="1000")
    fill(log, clock)
    await node.upkeep.archive_all()
    start = log.local_start_offset
    with pytest.raises(ApiError, match="without deleting remote data") as caught:
        await alter(node, remote_storage_enable="false")
    assert caught.value.code is ErrorCode.invalid_config
    await alter(node, remote_storage_enable="false", remote_log_delete_on_disable="true")
    assert log.start_offset == start
    assert offsets(log) == list(range(start, 40))
    await eventually(lambda: not archived_files(cold))


async def test_a_deleted_topic_leaves_nothing_in_the_archive(
    node: Node, clock: ManualClock, cold: Path
) -> None:
    logs = [await topic(node, name, local_retention_bytes="0") for name in ("orders", "kept")]
    for log in logs:
        fill(log, clock)
    await node.upkeep.archive_all()
    await node.commit_topics(node.topics.delete(node.topics.by_name["orders"]))
    await eventually(lambda: {path.parents[1].name[:5] for path in archived_files(cold)} == {"kept."})
    assert offsets(logs[1]) == list(range(40))


async def test_a_topic_that_was_deleted_before_a_crash_leaves_nothing_there_either(
    tmp_path: Path, cold: Path, clock: ManualClock
) -> None:
    node = await started(tmp_path, clock)
    log = await topic(node, local_retention_bytes="0")
    fill(log, clock)
    await node.upkeep.archive_all()
    node.logs.sweep = lambda doomed: None  # type: ignore[method-assign]
    await node.commit_topics(node.topics.delete(node.topics.by_name["orders"]))
    await node.close()
    assert archived_files(cold)
    node = await started(tmp_path, clock)
    await eventually(lambda: not archived_files(cold))
    await node.close()


async def test_an_archive_that_is_away_costs_nothing_but_what_is_there(
    node: Node, clock: ManualClock, cold: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = await topic(node, local_retention_bytes="1000")
    fill(log, clock)
    await node.upkeep.archive_all()
    moved = log.local_start_offset
    away = unmount(cold)
    fill(log, clock)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            await node.upkeep.archive_all()
    assert sum("archived later" in record.message for record in caplog.records) == 1, "it is said once"
    assert node.upkeep.archiving.failures == 3
    assert log.local_start_offset == moved
    assert log.error is None
    mount(away, cold)
    await node.upkeep.archive_all()
    assert node.upkeep.archiving.failure is None
    assert log.local_start_offset > moved
    assert offsets(log) == list(range(80))


async def test_an_archive_that_was_never_there_is_not_made(tmp_path: Path, clock: ManualClock) -> None:
    node = await started(tmp_path, clock)
    log = await topic(node, local_retention_bytes="0")
    fill(log, clock)
    await node.upkeep.archive_all()
    assert "make that directory" in str(node.upkeep.archiving.failure)
    assert not (tmp_path / "cold").exists()
    (tmp_path / "cold").mkdir()
    await node.upkeep.archive_all()
    assert log.archived
    await node.close()


async def test_what_a_crash_left_in_the_archive_is_swept(
    tmp_path: Path, cold: Path, clock: ManualClock
) -> None:
    node = await started(tmp_path, clock)
    log = await topic(node, local_retention_bytes="1000")
    fill(log, clock)
    await node.upkeep.archive_all()
    assert log.archive is not None
    kept = archived_files(cold)
    await node.close()
    for name in (f"{log.local_start_offset:020d}.log", f"{99:020d}.log.new"):
        (log.archive / name).write_bytes(b"left")
    node = await started(tmp_path, clock)
    await node.upkeep.archive_all()
    assert archived_files(cold) == kept
    assert not unfinished(cold)
    [log] = node.logs.of_topic("orders", 1)
    assert offsets(log) == list(range(40))
    await node.close()


async def test_a_node_stops_while_a_slow_copy_is_under_way(
    tmp_path: Path, cold: Path, clock: ManualClock
) -> None:
    node = await started(tmp_path, clock, **{"remote.log.manager.copy.max.bytes.per.second": "1"})
    log = await topic(node, local_retention_bytes="0")
    fill(log, clock)
    work = asyncio.create_task(node.upkeep.archive_all())
    await eventually(lambda: bool(unfinished(cold)))
    await asyncio.wait_for(node.close(), 10)
    await asyncio.wait_for(work, 10)
    assert archived_files(cold) == []
    node = await started(tmp_path, clock)
    [log] = node.logs.of_topic("orders", 1)
    assert offsets(log) == list(range(40))
    await node.close()


async def test_a_segment_that_is_deleted_while_it_is_copied_is_not_kept(
    tmp_path: Path, cold: Path, clock: ManualClock
) -> None:
    node = await started(tmp_path, clock, **{"remote.log.manager.copy.max.bytes.per.second": "1500"})
    log = await topic(node, local_retention_bytes="0")
    fill(log, clock)
    work = asyncio.create_task(node.upkeep.archive_all())
    await eventually(lambda: bool(unfinished(cold)))
    log.delete_before(20)
    await work
    assert all(int(path.stem) >= log.segments[0].base_offset for path in archived_files(cold))
    assert offsets(log) == list(range(20, 40))
    await node.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cleanup.policy": "compact"}, "only supports topics with cleanup.policy=delete"),
        (
            {"retention.ms": "1000", "local.retention.ms": "2000"},
            "more than retention.ms property value: 1000",
        ),
        (
            {"retention.bytes": "1000", "local.retention.bytes": "-1"},
            "as retention.bytes value is set as 1000.",
        ),
        (
            {"remote.log.copy.disable": "true", "retention.bytes": "9", "local.retention.bytes": "5"},
            "must be set to the identical value",
        ),
    ],
)
async def test_settings_that_do_not_fit_one_another(
    node: Node, settings: dict[str, str], message: str
) -> None:
    new = NewTopic("wrong", 1, 1, configs={"remote.storage.enable": "true"} | settings)
    with pytest.raises(ApiError, match=message) as caught:
        node.topics.create(new)
    assert caught.value.code is ErrorCode.invalid_config
    new = NewTopic("right", 1, 1, configs=settings)
    assert node.topics.create(new), "they are free where nothing is archived"


async def test_a_broker_without_an_archive_refuses_to_promise_one(tmp_path: Path, clock: ManualClock) -> None:
    node = Node(tmp_path / "data", clock, CONFIG, synced=True)
    node.open()
    with pytest.raises(ApiError, match=r"headwater\.archive\.dir") as caught:
        node.topics.create(NewTopic("t", 1, 1, configs={"remote.storage.enable": "true"}))
    assert caught.value.code is ErrorCode.invalid_config
    await node.close()
