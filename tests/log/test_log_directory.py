"""The data directory: locked, versioned, and careful with what it does not know."""

from __future__ import annotations

import gc
import json
import logging
import random
import subprocess
import sys
import tracemalloc
import uuid
from pathlib import Path

import pytest
from log_helpers import NOW, TOPIC, TOPIC_ID, append, contents, kill, rows

from headwater.log.config import LogConfig
from headwater.log.directory import LogDirectory
from headwater.log.errors import DirectoryLocked, UnknownFormat
from headwater.testing.disk import FaultyDisk

CONFIG = LogConfig()


def opened(
    path: Path, disk: FaultyDisk | None = None, partitions: int = 2, *, synced: bool = True
) -> LogDirectory:
    logs = LogDirectory(path, synced=synced, disk=disk)
    logs.open_topic(TOPIC, TOPIC_ID, range(partitions), CONFIG, NOW)
    return logs


def fill(logs: LogDirectory, partition: int = 0) -> None:
    log = logs.get(TOPIC, partition)
    assert log is not None
    append(log, rows(3))
    log.sync()


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    logs = opened(tmp_path)
    with pytest.raises(DirectoryLocked, match="in use by another process"):
        LogDirectory(tmp_path, synced=True)
    script = (
        "import sys; from pathlib import Path; from headwater.log.directory import LogDirectory\n"
        "LogDirectory(Path(sys.argv[1]), synced=True)"
    )
    other = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True)
    assert other.returncode != 0
    assert "DirectoryLocked" in other.stderr
    logs.close()
    opened(tmp_path).close()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (json.dumps({"version": 3, "cluster_id": "x"}), "use a newer Headwater"),
        ("garbage", "does not read"),
        ("", "does not read"),
        ("[]", "does not read"),
        ('{"version": 1}', "does not read"),
        (None, "restore that file"),
    ],
)
def test_a_format_that_is_not_ours_is_refused_and_leaves_no_lock(
    tmp_path: Path, content: str | None, words: str
) -> None:
    logs = opened(tmp_path)
    logs.close()
    original = (tmp_path / "format").read_bytes()
    if content is None:
        (tmp_path / "format").unlink()
    else:
        (tmp_path / "format").write_text(content)
    for _ in range(2):
        with pytest.raises(UnknownFormat, match=words):
            LogDirectory(tmp_path, synced=True)
    (tmp_path / "format").write_bytes(original)
    again = opened(tmp_path)
    assert again.cluster_id == logs.cluster_id
    again.close()


def test_a_crash_while_the_directory_is_made_leaves_what_the_next_start_understands(tmp_path: Path) -> None:
    for seed in range(30):
        root = tmp_path / f"{seed}"
        root.mkdir()
        disk = FaultyDisk(root)
        logs = opened(root / "deep" / "data", disk)
        cluster_id = logs.cluster_id
        kill(logs)
        after = disk.crash(tmp_path / f"{seed}-after", random.Random(seed))
        again = opened(after.root / "deep" / "data", after)
        assert again.cluster_id == cluster_id
        kill(again)


def test_a_deleted_topic_is_swept_away_now_or_after_a_crash(tmp_path: Path) -> None:
    logs = opened(tmp_path)
    fill(logs)
    logs.delete_topic(TOPIC, TOPIC_ID, 2)
    assert logs.get(TOPIC, 0) is None
    [doomed] = (tmp_path / "topics").iterdir()
    kill(logs)
    logs = LogDirectory(tmp_path, synced=True)
    logs.settle(set())
    assert doomed.exists()
    logs.sweep(logs.take_doomed())
    assert not doomed.exists()
    logs.close()


def test_a_topic_made_again_under_the_same_name_starts_empty(tmp_path: Path) -> None:
    logs = opened(tmp_path)
    fill(logs)
    logs.delete_topic(TOPIC, TOPIC_ID, 2)
    logs.open_topic(TOPIC, uuid.UUID(int=8), range(2), CONFIG, NOW)
    log = logs.get(TOPIC, 0)
    assert log is not None
    assert log.end_offset == 0
    logs.close()


def test_a_deletion_that_a_crash_took_back_gives_the_data_back(tmp_path: Path) -> None:
    logs = opened(tmp_path)
    fill(logs)
    logs.delete_topic(TOPIC, TOPIC_ID, 2)
    kill(logs)  # before the deletion itself was durable: the topic is still there
    logs = opened(tmp_path)
    logs.settle({TOPIC_ID})
    logs.sweep(logs.take_doomed())
    log = logs.get(TOPIC, 0)
    assert log is not None
    assert len(contents(log)) == 3
    logs.close()


def test_what_belongs_to_no_known_topic_is_set_aside_and_not_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logs = opened(tmp_path)
    fill(logs)
    logs.close()
    (tmp_path / "topics" / "notes.txt").mkdir()
    logs = LogDirectory(tmp_path, synced=True)
    for _ in range(2):
        logs.settle(set())
        logs.sweep(logs.take_doomed())
    names = sorted(path.name for path in (tmp_path / "topics").iterdir())
    assert names == ["notes.txt", f"{TOPIC}.{TOPIC_ID.hex}.orphan"]
    assert "belongs to no topic" in caplog.text
    logs.close()


def test_known_topics_stay_whatever_their_name(tmp_path: Path) -> None:
    logs = LogDirectory(tmp_path, synced=True)
    names = {"a.deleted": 1, "a.b.c": 2, "x" * 249: 3, "...": 4}
    for name, number in names.items():
        logs.open_topic(name, uuid.UUID(int=number), range(1), CONFIG, NOW)
        log = logs.get(name, 0)
        assert log is not None
        append(log, rows(1))
    logs.close()
    logs = LogDirectory(tmp_path, synced=True)
    for name, number in names.items():
        logs.open_topic(name, uuid.UUID(int=number), range(1), CONFIG, NOW)
    logs.settle({uuid.UUID(int=number) for number in names.values()})
    logs.sweep(logs.take_doomed())
    assert all(log.end_offset == 1 for log in logs)
    logs.close()


def test_what_was_visible_after_a_kill_survives_the_power_loss_that_follows(tmp_path: Path) -> None:
    root = tmp_path / "data"
    root.mkdir()
    disk = FaultyDisk(root)
    logs = opened(root, disk)
    state = logs.open_state("metadata", NOW)
    append(state, rows(2))
    for partition in range(2):
        log = logs.get(TOPIC, partition)
        assert log is not None
        append(log, rows(2))
    disk.kill()
    kill(logs)
    logs = opened(root, disk)
    state = logs.open_state("metadata", NOW)
    logs.settle({TOPIC_ID})
    assert [state.high_watermark, *(log.high_watermark for log in logs)] == [2, 2, 2]
    after = disk.crash(tmp_path / "after")
    kill(logs)
    logs = opened(after.root, after)
    assert [log.end_offset for log in logs] == [2, 2]
    assert logs.open_state("metadata", NOW).end_offset == 2
    logs.close()


def test_closing_closes_every_log_even_when_one_has_failed(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    logs = opened(tmp_path, disk)
    logs.open_state("metadata", NOW)
    fill(logs, 0)
    log = logs.get(TOPIC, 1)
    assert log is not None
    append(log, rows(1))
    disk.fail_sync()
    log.sync()
    disk.full = True
    logs.close()
    disk.full = False
    assert disk.open_files == 0
    opened(tmp_path, disk).close()


def test_thousands_of_partitions_cost_little(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "headwater")  # what pytest keeps of each line would count too
    count = 2000
    logs = LogDirectory(tmp_path, synced=False, open_files=100)
    logs.open_topic(TOPIC, TOPIC_ID, range(count), CONFIG, NOW)
    for log in logs:
        append(log, rows(1))
    assert len(logs.files) <= 100
    kill(logs)
    for segment in list(logs.files._segments):
        logs.files.close(segment)
    tracemalloc.start()
    try:
        logs = opened(tmp_path, partitions=count, synced=False)
        gc.collect()
        made = tracemalloc.take_snapshot().statistics("lineno")
    finally:
        tracemalloc.stop()
    # What there is of each partition; a table of the interpreter that grew meanwhile is not.
    each = sum(line.size for line in made if line.count >= count // 2) / count
    assert each > 500
    assert all(log.end_offset == 1 for log in logs)
    assert len(logs.files) == 0
    assert each < 2500
    kill(logs)
