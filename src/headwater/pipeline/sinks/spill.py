"""What a task hands to the driver: finished batches, or where they lie when they are many.

Batches that stay in the task's result pass through the JVM of the executor and that of the driver. Past a
few megabytes they go to a file beside the query's checkpoint instead, and only their places are handed
over. The file needs no sync: whatever is lost in a crash is computed again.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow as pa

if TYPE_CHECKING:
    from headwater.pipeline.sinks.encode import Finished

__all__ = ["DDL", "Handed", "Spill", "clear", "directory_of", "remove"]

DDL = "partition int, size int, data binary, file string, start bigint"
"""The columns of a task's result, one row for each batch."""

_SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("size", pa.int32()),
        ("data", pa.binary()),
        ("file", pa.string()),
        ("start", pa.int64()),
    ]
)
_INLINE = 4 * 1024 * 1024
"""What one task may hand over in its result. Spark counts all results of a job against 1 GB."""


class Handed(NamedTuple):
    """A finished batch, or its place in a file."""

    partition: int
    size: int
    data: bytes | None
    file: str | None
    start: int

    def read(self) -> bytearray:
        """Return the batch, to be stamped and sent."""
        if self.data is not None:
            return bytearray(self.data)
        assert self.file is not None
        batch = bytearray(self.size)
        with open(self.file, "rb") as file:
            file.seek(self.start)
            if file.readinto(batch) != self.size:
                raise OSError(f"{self.file} ends before byte {self.start + self.size}")
        return batch


class Spill:
    """Decides for each batch of one task where it goes."""

    def __init__(self, directory: str | None, inline: int = _INLINE) -> None:
        self._directory = directory
        self._left = inline
        self._file: BinaryIO | None = None

    def hand(self, batch: Finished) -> pa.RecordBatch:
        """Return the row that stands for a batch."""
        size = len(batch.data)
        if self._directory is None or size <= self._left:
            self._left -= size
            return _row(batch, batch.data, None, 0)
        if self._file is None:
            self._file = _new_file(Path(self._directory))
        start = self._file.tell()
        self._file.write(batch.data)
        return _row(batch, None, self._file.name, start)

    def close(self) -> None:
        """Let the driver read what was written."""
        if self._file is not None:
            self._file.close()


def _new_file(directory: Path) -> BinaryIO:
    directory.mkdir(parents=True, exist_ok=True)
    return open(directory / f"{uuid.uuid4().hex}.batches", "xb")


def _row(batch: Finished, data: bytes | None, file: str | None, start: int) -> pa.RecordBatch:
    values = [batch.partition, len(batch.data), data, file, start]
    columns = [pa.array([value], field.type) for value, field in zip(values, _SCHEMA, strict=True)]
    return pa.record_batch(columns, schema=_SCHEMA)


def directory_of(checkpoint: str) -> str | None:
    """Return where tasks may leave files for the driver: beside a checkpoint that is a local directory."""
    parts = urlsplit(checkpoint)
    if parts.scheme not in ("", "file"):
        return None
    path = checkpoint if not parts.scheme else unquote(parts.path)
    return str(Path(path).absolute() / "batches")


def clear(directory: str | None) -> None:
    """Remove what earlier runs left there."""
    if directory is not None:
        for file in Path(directory).glob("*.batches"):
            file.unlink(missing_ok=True)


def remove(batches: list[Handed]) -> None:
    """Remove the files of an epoch that is done."""
    for file in {batch.file for batch in batches if batch.file is not None}:
        Path(file).unlink(missing_ok=True)
