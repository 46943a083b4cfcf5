"""Where the sources of one query tell each other what time it is with them.

Spark takes the lowest watermark of a query's sources, so a topic that falls silent would hold back its joins for
ever: orders that nobody pays never come out as unpaid while there are no payments at all. A source that is idle
therefore follows the others, as an idle partition does: it takes over the lowest watermark of those that are
not. What comes into the quiet topic later and is older than that is late.

A table's source that others wait for no longer than so much follows them as well, that far behind.

Each source is a process of its own on the driver's machine. They meet in a directory with one small file per
topic. Nothing in it has to survive: what was taken over is in the source's offset.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

__all__ = ["Meeting"]


class Meeting:
    """The seat of one topic's source among those of its query."""

    def __init__(self, directory: str, topic: str, topics: Iterable[str]) -> None:
        self._directory = Path(directory)
        self._directory.mkdir(parents=True, exist_ok=True)
        self._mine = self._seat(topic)
        self._others = [self._seat(other) for other in sorted(set(topics) - {topic})]
        self._told: str | None = None

    def tell(self, watermark: int | None, *, idle: bool) -> None:
        """Let the others know this source's time, and whether it still goes on by itself."""
        text = json.dumps({"watermark": watermark, "idle": idle, "process": os.getpid()})
        if text == self._told:
            return
        # A rename replaces the file at once: nobody reads half of one.
        draft = self._mine.with_suffix(f".{os.getpid()}")
        draft.write_text(text)
        draft.replace(self._mine)
        self._told = text

    def lowest(self) -> int | None:
        """Return the lowest watermark of the others that are not idle; None where none is, or one has none."""
        said = [each for each in map(_read, self._others) if each is not None]
        times = [watermark for watermark, idle in said if not idle]
        known = [time for time in times if time is not None]
        return min(known) if known and len(known) == len(times) else None

    def slowest(self, topics: Iterable[str]) -> int | None:
        """Return the lowest watermark of some topics, whether they go on or not; None where nobody has told one."""
        said = [each for each in map(_read, map(self._seat, topics)) if each is not None]
        return min((time for time, _ in said if time is not None), default=None)

    def _seat(self, topic: str) -> Path:
        return self._directory / f"{topic}.json"


def _read(seat: Path) -> tuple[int | None, bool] | None:
    """Return a source's watermark and whether it is idle; None where no process that lives has told it."""
    try:
        said = json.loads(seat.read_text())
    except FileNotFoundError:
        return None
    return (said["watermark"], said["idle"]) if _lives(said["process"]) else None


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
