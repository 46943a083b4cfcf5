"""A partition's checkpoint: what recovery may take as known, and what no batch on disk tells.

    start_offset   where the log begins for its readers (records before it are deleted)
    segment        \\
    position        > everything before this place was on stable storage when this was written
    next_offset    /
    producers      the idempotent producers as of `next_offset`

It is replaced as a whole, under a checksum. A checkpoint that is missing or damaged costs a longer scan and
nothing else, except for `start_offset`: it is synced before a deletion of records is acknowledged.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crc32c import crc32c

from headwater.log.disk import Disk

NAME = "checkpoint"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What recovery may take as known."""

    start_offset: int = 0
    segment: int = 0
    position: int = 0
    next_offset: int = 0
    producers: list[Any] = field(default_factory=list)

    def save(self, disk: Disk, directory: Path, *, durable: bool) -> None:
        """Replace the checkpoint of the partition in `directory`."""
        body = json.dumps(
            [self.start_offset, self.segment, self.position, self.next_offset, self.producers],
            separators=(",", ":"),
        ).encode()
        disk.write_file(directory / NAME, b"%08x %b\n" % (crc32c(body), body), durable=durable)


def load(directory: Path) -> Checkpoint | None:
    """Return the checkpoint of the partition in `directory`, or None where there is none that reads."""
    try:
        data = (directory / NAME).read_bytes()
    except FileNotFoundError:
        return None
    crc, _, body = data.rstrip(b"\n").partition(b" ")
    try:
        if int(crc, 16) != crc32c(body):
            return None
        return Checkpoint(*json.loads(body))
    except (ValueError, TypeError):
        return None
