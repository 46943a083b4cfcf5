"""A source in a thread of its own, so that a database is read while its changes are published.

One thread uses the source: it follows it, and acknowledges to it between two batches. What it yields waits in a box
of bounded size for whoever publishes; a commit takes as long as it takes, and what has come meanwhile is the next
transaction.
"""

from __future__ import annotations

import threading
from collections import deque

from headwater.capture.change import Batch, Position
from headwater.capture.source import Source

__all__ = ["Feed"]

_MOST_BYTES = 32 * 1024 * 1024
_CHANGE_BYTES = 500
"""What a change, and a batch, takes besides the text of its values."""
_SAMPLE = 50


class Feed:
    """Batches of a source, from a position on."""

    def __init__(self, source: Source, position: Position | None) -> None:
        self._source = source
        self._condition = threading.Condition()
        self._batches: deque[tuple[Batch, int]] = deque()
        self._bytes = 0
        self._stopping = False
        self._ended = False
        self._failure: BaseException | None = None
        self._acknowledged: Position | None = None
        self._thread = threading.Thread(
            target=self._run, args=(position,), name="headwater-capture", daemon=True
        )
        self._thread.start()

    def get(self, seconds: float) -> Batch | None:
        """Return the next batch, or None where none comes in time; raise what ended the source."""
        with self._condition:
            self._condition.wait_for(lambda: self._batches or self._ended, seconds)
            if self._batches:
                batch, size = self._batches.popleft()
                self._bytes -= size
                self._condition.notify_all()
                return batch
            if self._failure is not None:
                raise self._failure
            return None

    @property
    def waiting(self) -> bool:
        """Whether there is a batch to be had at once."""
        return bool(self._batches)

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self._ended and not self._batches

    def acknowledge(self, position: Position) -> None:
        """Have the source told, in its own thread, what is safely published."""
        self._acknowledged = position

    def stop(self, seconds: float = 10.0) -> None:
        """End the thread, which tells the source what was acknowledged last, and close the source."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()
        self._thread.join(seconds)

    def _run(self, position: Position | None) -> None:
        try:
            for batch in self._source.follow(position):
                self._tell()
                if not self._put(batch):
                    break
            self._tell()
        except BaseException as error:
            self._failure = error
        finally:
            try:
                self._source.close()
            except Exception as error:
                self._failure = self._failure or error
            with self._condition:
                self._ended = True
                self._condition.notify_all()

    def _tell(self) -> None:
        position, self._acknowledged = self._acknowledged, None
        if position is not None:
            self._source.acknowledge(position)

    def _put(self, batch: Batch) -> bool:
        size = _size(batch)
        with self._condition:
            self._condition.wait_for(lambda: self._bytes < _MOST_BYTES or self._stopping)
            if self._stopping:
                return False
            self._batches.append((batch, size))
            self._bytes += size
            self._condition.notify_all()
            return True


def _size(batch: Batch) -> int:
    """Return about how much memory a batch takes, by some of its changes: to look at all of them takes long."""
    sample = batch.changes[:: max(1, len(batch.changes) // _SAMPLE)]
    taken = sum(
        len(value or b"") for change in sample for row in (change.before, change.after) for value in row or ()
    )
    return _CHANGE_BYTES * (1 + len(batch.changes)) + taken * len(batch.changes) // max(1, len(sample))
