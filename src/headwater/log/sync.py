"""The work of making one partition durable: begun and ended on its owner's thread, done on any."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.log.checkpoint import Checkpoint
from headwater.log.index import Coverage
from headwater.log.segment import Segment

if TYPE_CHECKING:
    from headwater.log.growing import GrowingLog


class SyncWork:
    """What it takes to make a partition durable up to the moment of `begin_sync`."""

    __slots__ = (
        "_before",
        "_done",
        "_lock",
        "checkpoint",
        "coverage",
        "directories",
        "disk",
        "error",
        "files",
        "log",
        "offset",
        "position",
        "segment",
        "segments",
    )

    def __init__(
        self, log: GrowingLog, segments: list[Segment], directories: list[Path], before: SyncWork | None
    ) -> None:
        self.log = log
        self._before = before
        self.disk = log.disk
        self.segments = segments
        self.error: OSError | None = None
        try:
            self.files = [segment.descriptor for segment in segments]
        except OSError as error:
            self.error = error
        self.directories = directories
        self.segment = segments[-1]
        self.position = self.segment.size
        self.offset = log.end_offset
        self.checkpoint: Checkpoint | None = None
        self.coverage: Coverage | None = None
        self._lock = threading.Lock()
        self._done = False

    def run(self) -> None:
        """Sync the files, then the directories that name new ones; any thread may do this.

        It is done once: whoever comes second waits for the first. Works of one log are done one after the other:
        the kernel tells of a write that failed to one sync alone, and the others would take it for done.
        """
        with self._lock:
            if self._done:
                return
            self._done = True
            if self._before is not None:
                self._before.run()
                self.error = self.error or self._before.error
                self._before = None
            if self.error is not None:
                return
            try:
                for fd in self.files:
                    self.disk.sync(fd)
                for directory in self.directories:
                    self.disk.sync_directory(directory)
            except OSError as error:
                self.error = error

    def end(self) -> None:
        """Have the log take note of what was achieved."""
        self.log.end_sync(self)
