"""Projections: rows that a Python function keeps over the events of a store.

>>> def balances(event, rows):
...     rows[event.stream] = rows.get(event.stream, 0) + event.data["amount"]
>>> projection = Projection(store, balances)   # doctest: +SKIP
>>> projection.catch_up()   # doctest: +SKIP
>>> projection["ann"]   # doctest: +SKIP
10

The function sees each event once, brought up to date by the store's upcasters; those of one stream in their
order, those of different streams in the order of their partitions. What it wrote is committed together with
how far it has read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

from headwater.events.errors import EventError
from headwater.events.event import Event
from headwater.events.fold import fingerprint
from headwater.events.follow import Progress
from headwater.events.projection_file import Generation, ProjectionFile
from headwater.events.store import DIRECTORY, EventStore

__all__ = ["Project", "Projection", "StaleProjection"]

Project = Callable[[Event, MutableMapping[str, Any]], None]

_CHUNK = 1000
_PAUSE_SECONDS = 0.1


class StaleProjection(EventError):
    """Rows that other code has made than the code that is to go on with them."""


class Projection:
    """The rows of one function over one store. Thread-safe."""

    def __init__(
        self,
        store: EventStore,
        function: Project,
        *,
        name: str | None = None,
        directory: Path | str = DIRECTORY,
    ) -> None:
        self.name = name or function.__name__
        self._store = store
        self._function = function
        upcasters = store.upcasters.functions() if store.upcasters is not None else []
        self._code = fingerprint(self.name, [function, *upcasters])
        self._file = ProjectionFile(Path(directory) / f"{store.name}.{self.name}.projection.db")
        if self._file.served() is None:
            self._file.begin(self._code, served=True)

    def close(self) -> None:
        """Close the file; the store stays open."""
        self._file.close()

    # Rows

    def __getitem__(self, key: str) -> Any:
        with self._file.reading() as rows:
            return rows[key]

    def get(self, key: str, default: Any = None) -> Any:
        """Return a row, or the default where there is none."""
        with self._file.reading() as rows:
            return rows.get(key, default)

    def rows(self) -> dict[str, Any]:
        """Return all rows by their keys, of one moment."""
        with self._file.reading() as rows:
            return dict(rows)

    # Events

    @property
    def is_stale(self) -> bool:
        """Whether other code than today's has made the rows that are served."""
        served = self._file.served()
        return served is None or served[1] != self._code

    def catch_up(self) -> int:
        """Take in all events up to now, and return how many there were."""
        if self.is_stale:
            raise StaleProjection(
                f"the rows of the projection {self.name} were made by other code than today's: rebuild it"
            )
        return self._advance(None, None)

    def follow(self, until: threading.Event) -> None:
        """Take in events as they come, until somebody sets `until`."""
        while not until.is_set():
            if not self.catch_up():
                until.wait(_PAUSE_SECONDS)

    def rebuild(self, progress: Progress | None = None) -> int:
        """Make the rows anew from all events, and serve them once they have caught up; the old ones serve until then.

        Returns how many events there were.
        """
        number = self._file.begin(self._code, served=False)
        done = self._advance(number, progress)
        while not self._file.serve(number):
            done += self._advance(number, None)
        return done

    def _advance(self, number: int | None, progress: Progress | None) -> int:
        self._store.refresh()
        total = self._store.index.count() if progress is not None else 0
        done = 0
        for partition in range(self._store.partitions):
            while True:
                with self._file.changing(number) as generation:
                    count = self._chunk(generation, partition)
                done += count
                if progress is not None:
                    progress(min(done, total), total)
                if count < _CHUNK:
                    break
        return done

    def _chunk(self, generation: Generation, partition: int) -> int:
        at = generation.positions().get(partition, 0)
        events = self._store.index.behind(partition, at, _CHUNK)
        for event in events:
            try:
                current = self._store.upcasters(event) if self._store.upcasters is not None else event
                self._function(current, generation.rows)
            except Exception as error:
                error.add_note(
                    f"in the projection {self.name}, at version {event.version} ({event.type}) of the stream "
                    f"{event.stream}; the rows are as they were before it"
                )
                raise
        if events:
            generation.move(partition, events[-1].offset + 1)
        return len(events)
