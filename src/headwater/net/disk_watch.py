"""The watch over the disk's free space: producers are refused before it is full.

A disk that is full to the last byte can take neither the offsets that consumers commit nor the checkpoint
that lets a topic be shortened. So a reserve is kept: below it, records are refused with an error that
producers retry, and everything else goes on. Records are taken again once there is a tenth more than the
reserve, so that the two do not alternate with every segment that comes and goes.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

logger = logging.getLogger(__name__)

AUTOMATIC = -1
_CHECK_SECONDS = 0.25
_MOST_RESERVED = 1024**3
_SHARE = 20


class DiskWatch:
    """What is known of the free space of the data's disk."""

    def __init__(self, path: Path, reserve: int) -> None:
        self._path = path
        self._wanted = reserve
        self._timer: asyncio.TimerHandle | None = None
        self.refusal: str | None = None
        """Why records are refused, or None while there is room."""

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look now, and from here on."""
        self.check()
        self._timer = loop.call_later(_CHECK_SECONDS, self.start, loop)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def check(self) -> None:
        """Look at the disk, and decide whether records are taken."""
        try:
            disk = os.statvfs(self._path)
        except OSError as error:
            logger.warning("the free space of %s is not known: %s", self._path, error)
            return
        self.judge(disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize)

    def judge(self, free: int, size: int) -> None:
        """Decide whether records are taken, with so many bytes free on a disk of this size."""
        reserve = self.reserve(size)
        if self.refusal is None and free < reserve:
            self.refusal = (
                f"the disk has {free} bytes left, and {reserve} are kept free (headwater.disk.reserve.bytes): "
                "delete topics or records, shorten their retention, or enlarge the disk"
            )
            logger.error("records are refused: %s", self.refusal, extra={"reason": self.refusal})
        elif self.refusal is not None and free >= reserve + reserve // 10:
            self.refusal = None
            logger.warning("records are taken again: the disk has %d bytes left", free)

    def reserve(self, size: int) -> int:
        """Return how much of a disk of this size is kept free."""
        return min(_MOST_RESERVED, size // _SHARE) if self._wanted == AUTOMATIC else self._wanted
