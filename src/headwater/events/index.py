"""What a store knows of its topic: streams and their events, derived from the log up to a position.

The file holds a copy of each event, so that a stream is read in one query; it can be thrown away at any time.
Rows and the position that they lead up to are committed together. Applying what was applied already changes
nothing, so several processes may bring one file up to date.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from headwater.events.envelope import read_value
from headwater.events.errors import StaleIndex
from headwater.events.event import Event
from headwater.events.fold import Fold
from headwater.events.index_file import IndexFile
from headwater.events.plan import Head, State
from headwater.events.sift import Found, Skipped, sift
from headwater.record.records import Record

__all__ = ["Index"]

logger = logging.getLogger(__name__)

_PAGE = 500
_HEAD = "SELECT version, time_ms FROM events WHERE stream = ? ORDER BY version DESC LIMIT 1"
_INSERT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_EVENT = 'SELECT value, partition, "offset", secret FROM events LEFT JOIN keys ON keys.id = key_id '
_ERASURES = "SELECT count FROM erasures"


class Index:
    """The streams of one topic. Thread-safe."""

    def __init__(self, path: Path, topic: str, topic_id: str, partitions: int) -> None:
        self._file = IndexFile(path)
        try:
            self._check(path, topic, topic_id, partitions)
        except BaseException:
            self._file.close()
            raise

    @property
    def file(self) -> IndexFile:
        """The file, which the keys of personal data are in as well."""
        return self._file

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    # What is written

    def apply(self, partition: int, found: Sequence[Found], next_offset: int) -> None:
        """Take in events that are known to follow what is here, and move the position."""
        with self._file.writing() as connection:
            position = _position(connection, partition)
            _insert(connection, partition, [each for each in found if each.event.offset >= position])
            _move(connection, partition, next_offset, 0)

    def take_in(self, partition: int, records: Iterable[tuple[Record, bool]], next_offset: int) -> int:
        """Take in what is an event among records of the log; return how many are none."""
        with self._file.writing() as connection:
            position = _position(connection, partition)
            fresh = [each for each in records if each[0].offset >= position]
            events: list[Found] = []
            skipped: list[Skipped] = []
            for each in sift(partition, fresh, lambda stream: _head(connection, stream)):
                if isinstance(each, Found):
                    events.append(each)
                else:
                    skipped.append(each)
            _insert(connection, partition, events)
            _move(connection, partition, next_offset, len(skipped))
        if skipped:
            logger.warning(
                "%d records of partition %d are no events of the store, and are left out; offset %d: %s",
                len(skipped),
                partition,
                skipped[0].offset,
                skipped[0].reason,
            )
        return len(skipped)

    def snapshot(self, fold: Fold, stream: str, state: State) -> State:
        """Keep a state as a snapshot, where so many events lie behind the last one.

        One that was made before an erasure is not kept: it may hold what was erased.
        """
        if not fold.snapshot_every or state.version - state.snapshot < fold.snapshot_every:
            return state
        text = fold.dump(state.value)
        with self._file.writing() as connection:
            if connection.execute(_ERASURES).fetchone()[0] != state.erasures:
                return state
            row = (fold.fingerprint, stream, state.version, text)
            connection.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?)", row)
        return state._replace(snapshot=state.version)

    # What is read

    def position(self, partition: int) -> int:
        """Return the offset that the index has come to."""
        with self._file.reading() as connection:
            return _position(connection, partition)

    def skipped(self) -> int:
        """Return how many records of the topic are no events."""
        with self._file.reading() as connection:
            [count] = connection.execute("SELECT coalesce(sum(skipped), 0) FROM positions").fetchone()
        return int(count)

    def head(self, stream: str) -> Head:
        """Return where a stream ends."""
        with self._file.reading() as connection:
            return _head(connection, stream)

    def version_at(self, stream: str, time_ms: int) -> int:
        """Return the version that a stream had at a time."""
        query = "SELECT max(version) FROM events WHERE stream = ? AND time_ms <= ?"
        with self._file.reading() as connection:
            [version] = connection.execute(query, (stream, time_ms)).fetchone()
        return version or 0

    def events(self, stream: str, after: int = 0, until: int | None = None) -> Iterator[Event]:
        """Yield a stream's events behind a version, up to another."""
        query = _EVENT + "WHERE stream = ? AND version > ? AND version <= ? ORDER BY version LIMIT ?"
        last = (1 << 62) if until is None else until
        while True:
            page = self._select(query, (stream, after, last, _PAGE))
            yield from page
            if len(page) < _PAGE:
                return
            after = page[-1].version

    def command(self, stream: str, command_id: str) -> tuple[Event, ...]:
        """Return the events that a command became."""
        query = _EVENT + "WHERE stream = ? AND command_id = ? ORDER BY version"
        return tuple(self._select(query, (stream, command_id)))

    def correlated(self, correlation_id: str) -> list[Event]:
        """Return the events of one conversation, in the order of their times."""
        query = _EVENT + 'WHERE correlation_id = ? ORDER BY time_ms, partition, "offset"'
        return self._select(query, (correlation_id,))

    def behind(self, partition: int, offset: int, limit: int) -> list[Event]:
        """Return a partition's events from an offset on, as the log has them."""
        query = _EVENT + 'WHERE partition = ? AND "offset" >= ? ORDER BY "offset" LIMIT ?'
        return self._select(query, (partition, offset, limit))

    def count(self) -> int:
        """Return how many events there are."""
        with self._file.reading() as connection:
            return int(connection.execute("SELECT count(*) FROM events").fetchone()[0])

    def streams(self, after: str = "", limit: int = _PAGE) -> list[tuple[str, int]]:
        """Return streams and their versions in the order of their names, behind one of them."""
        query = (
            "SELECT stream, max(version) FROM events WHERE stream > ? GROUP BY stream ORDER BY stream LIMIT ?"
        )
        with self._file.reading() as connection:
            return connection.execute(query, (after, limit)).fetchall()

    def state(self, fold: Fold, stream: str, until: int | None = None) -> State:
        """Return a stream's state at its end or at a version, from the last snapshot before it on."""
        query = (
            "SELECT version, state FROM snapshots WHERE fold = ? AND stream = ? AND version <= ? "
            "ORDER BY version DESC LIMIT 1"
        )
        last = (1 << 62) if until is None else until
        version, value = 0, fold.start()
        snapshot = erasures = 0
        if fold.snapshot_every:
            with self._file.reading() as connection:
                [erasures] = connection.execute(_ERASURES).fetchone()
                row = connection.execute(query, (fold.fingerprint, stream, last)).fetchone()
            if row is not None:
                version, value = row[0], fold.load(row[1])
                snapshot = version
        for event in self.events(stream, after=version, until=until):
            version, value = event.version, fold.step(value, event)
        return State(version, value, snapshot, erasures)

    def has_personal(self) -> bool:
        """Whether any event has personal data."""
        query = "SELECT 1 FROM events WHERE key_id IS NOT NULL LIMIT 1"
        with self._file.reading() as connection:
            return connection.execute(query).fetchone() is not None

    def _select(self, query: str, values: tuple[object, ...]) -> list[Event]:
        with self._file.reading() as connection:
            rows = connection.execute(query, values).fetchall()
        return [read_value(*row) for row in rows]

    def _check(self, path: Path, topic: str, topic_id: str, partitions: int) -> None:
        fix = f"rebuild it with `headwater events rebuild-index {topic}`"
        with self._file.writing() as connection:
            row = connection.execute("SELECT name, id, partitions FROM topic").fetchone()
            if row is None:
                connection.execute("INSERT INTO topic VALUES (?, ?, ?)", (topic, topic_id, partitions))
                connection.executemany(
                    "INSERT INTO positions (partition) VALUES (?)",
                    [(number,) for number in range(partitions)],
                )
                return
        if row[:2] != (topic, topic_id):
            raise StaleIndex(f"the index {path} is of another topic than today's {topic}: {fix}")
        if row[2] != partitions:
            raise StaleIndex(
                f"the topic {topic} has {partitions} partitions, and its events were written to {row[2]}: a "
                "store's partitions stay as they were made, so copy its events to a new store"
            )


def _head(connection: sqlite3.Connection, stream: str) -> Head:
    row = connection.execute(_HEAD, (stream,)).fetchone()
    return Head(*row) if row is not None else Head()


def _position(connection: sqlite3.Connection, partition: int) -> int:
    query = "SELECT next_offset FROM positions WHERE partition = ?"
    return int(connection.execute(query, (partition,)).fetchone()[0])


def _insert(connection: sqlite3.Connection, partition: int, found: Iterable[Found]) -> None:
    rows = (
        (
            partition,
            event.offset,
            event.stream,
            event.version,
            event.time_ms,
            event.command_id,
            event.correlation_id,
            value,
            event.key_id,
        )
        for event, value in found
    )
    connection.executemany(_INSERT, rows)


def _move(connection: sqlite3.Connection, partition: int, next_offset: int, skipped: int) -> None:
    connection.execute(
        "UPDATE positions SET next_offset = max(next_offset, ?), skipped = skipped + ? WHERE partition = ?",
        (next_offset, skipped, partition),
    )
