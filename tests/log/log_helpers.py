"""What the tests of the log share: batches to write, and readers that trust nothing."""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Sequence
from pathlib import Path

from headwater.log.config import LogConfig
from headwater.log.directory import LogDirectory
from headwater.log.disk import Disk
from headwater.log.errors import DamagedRange
from headwater.log.open_files import OpenFiles
from headwater.log.partition import PartitionLog
from headwater.log.recovery import open_partition
from headwater.record.batch import NO_PRODUCER, NO_SEQUENCE, batches, check, read_header
from headwater.record.codecs import Codec
from headwater.record.records import Record, decode_batch, encode_batch

NOW = 1_700_000_000_000
TOPIC = "orders"
TOPIC_ID = uuid.UUID(int=7)


def rows(count: int, *, size: int = 20, timestamp: int = NOW, seed: int = 0) -> list[Record]:
    """Return records with content that tells them apart."""
    chance = random.Random(seed)
    return [Record(i, timestamp + i, b"k%d" % seed, chance.randbytes(size)) for i in range(count)]


def append(
    log: PartitionLog,
    records: Sequence[Record],
    *,
    now_ms: int = NOW,
    codec: Codec = Codec.NONE,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
) -> int:
    """Append records as one batch."""
    batch = encode_batch(
        records,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    return log.append(memoryview(batch), read_header(batch), now_ms)


def open_log(
    directory: Path,
    *,
    config: LogConfig | None = None,
    disk: Disk | None = None,
    synced: bool = True,
    files: OpenFiles | None = None,
) -> PartitionLog:
    """Open the partition in `directory`."""
    files = OpenFiles(disk or Disk()) if files is None else files
    return open_partition(files, directory, TOPIC, 0, config or LogConfig(), synced=synced, now_ms=NOW)


def batch_at(log: PartitionLog, offset: int, max_bytes: int = 1) -> list[Record]:
    """Return the records that a read at `offset` yields, with everything about their bytes checked."""
    data = log.read(offset, max_bytes)
    out: list[Record] = []
    expected: int | None = None
    first = True
    for position, header in batches(data):
        check(bytes(data), position, position + header.size)
        if first:
            assert header.base_offset <= offset <= header.last_offset, "the first batch holds the offset"
            assert len(data) <= max(max_bytes, header.size)
        else:
            assert header.base_offset == expected, "batches follow one another without a gap"
        first, expected = False, header.last_offset + 1
        out.extend(decode_batch(data, position))
    assert out or offset == log.high_watermark
    return out


def contents(log: PartitionLog) -> dict[int, Record | None]:
    """Return the record at every visible offset, or None where it answers that it is damaged."""
    out: dict[int, Record | None] = {}
    for offset in range(log.start_offset, log.high_watermark):
        try:
            found = [record for record in batch_at(log, offset) if record.offset == offset]
        except DamagedRange:
            out[offset] = None
        else:
            [out[offset]] = found
    return out


def kill(logs: LogDirectory) -> None:
    """Let go of a directory as the end of its process does."""
    os.close(logs._lock)


def release(log: PartitionLog) -> None:
    """Close a log's files as the end of its process does, without a word to the disk."""
    files = log.files
    for segment in list(files._segments):
        segment.pins = 0
        files.close(segment)


def snapshot(directory: Path) -> dict[str, bytes]:
    """Return the content of every file of a partition."""
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def restore(directory: Path, files: dict[str, bytes]) -> None:
    """Make a partition's files what they were."""
    for path in directory.iterdir():
        if path.name not in files:
            path.unlink()
    for name, content in files.items():
        (directory / name).write_bytes(content)
