"""The keys that personal data are sealed with: a compacted topic beside the store's, from which they can be erased.

    key      a key's id, which no other key ever gets
    value    {"subject", "key"}; none once it is erased

A key is durable before the first event that is sealed with it is written, so an event whose key is not here, though
all of the topic was read, has been erased. Two writers that need a key of the same subject at once may both make one:
each event says which it needs, and an erasure takes all keys of its subject.

The index holds a copy, which follows the topic and counts the erasures. A broker forgets an erased key within
`max.compaction.lag.ms`, and that it was erased after another day. So a copy that is older than half of that is made
anew: what is not in the topic goes, in a pass of which each key has the number. Several processes may follow with one
file: what one of them has read counts only where the file still is at the place that it read from.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from headwater.client import EARLIEST, LATEST, ClientError, Cluster
from headwater.client.errors import UnknownTopic
from headwater.client.produce import produce
from headwater.client.reading import committed_records, following
from headwater.core.clock import Clock
from headwater.events.errors import Unavailable
from headwater.events.follow import fetch
from headwater.events.index import Index
from headwater.events.plan import Planned
from headwater.events.sealing import KEY_BYTES, new_key, seal
from headwater.record.records import Record

__all__ = ["Keys", "keys_topic"]

logger = logging.getLogger(__name__)

_HOUR_MS = 3_600_000
_SETTINGS = {
    "cleanup.policy": "compact",
    "max.compaction.lag.ms": str(_HOUR_MS),
    "delete.retention.ms": str(24 * _HOUR_MS),
}
_TOO_OLD_MS = 12 * _HOUR_MS
_NOTED_MS = 60_000
_FRESH_SECONDS = 1.0
_TRIES = 3
_EMPTY = 2
"""How many answers without records say that there are none: all of them may have been erased."""


def keys_topic(store: str) -> str:
    """Return the name of the topic of a store's keys."""
    return f"{store}.keys"


class _Key(NamedTuple):
    id: str
    secret: bytes


class _Position(NamedTuple):
    topic_id: str = ""
    next_offset: int = 0
    read_ms: int = 0
    number: int = 0
    """That of the pass."""


class Keys:
    """The keys of one store. Thread-safe, each thread with a cluster of its own."""

    def __init__(self, store: str, index: Index, clock: Clock) -> None:
        self.topic = keys_topic(store)
        self.erasures = 0
        """How many erasures there were when the topic was last looked at."""
        self._file = index.file
        self._clock = clock
        self._lock = threading.Lock()
        self._fresh_at = -_FRESH_SECONDS

    def follow(self, cluster: Cluster, *, at_once: bool = False) -> None:
        """Take in which keys were made and erased; unless that is wanted at once, a second may go by before."""
        with self._lock:
            began = time.monotonic()
            if not at_once and began - self._fresh_at < _FRESH_SECONDS:
                return
            self._catch_up(cluster)
            with self._file.reading() as connection:
                [self.erasures] = connection.execute("SELECT count FROM erasures").fetchone()
            self._fresh_at = began

    def seal(self, cluster: Cluster, planned: Sequence[Planned]) -> Sequence[Planned]:
        """Return events that are to be written with their personal data sealed, once the keys are durable."""
        subjects = {each.private.subject or "" for each in planned if each.private is not None}
        if not subjects:
            return planned
        try:
            keys = self._made(cluster, subjects)
        except ClientError as error:
            raise Unavailable(
                f"the keys in {self.topic} cannot be read: {error}; nothing was stored"
            ) from error
        return [_sealed(each, keys) for each in planned]

    def erase(self, cluster: Cluster, subject: str) -> int:
        """Erase the keys of a subject, and return how many events had their personal data sealed with them."""
        self.follow(cluster, at_once=True)
        ids = [key.id for key in self._of(subject)]
        if not ids:
            return 0
        now = self._clock.wall_ms()
        produce(cluster, self.topic, [Record(0, now, each.encode(), None) for each in ids])
        self.follow(cluster, at_once=True)
        self._file.settle()
        with self._file.reading() as connection:
            counts = (
                connection.execute("SELECT count(*) FROM events WHERE key_id = ?", (each,)) for each in ids
            )
            return sum(count.fetchone()[0] for count in counts)

    def _made(self, cluster: Cluster, subjects: set[str]) -> dict[str, _Key]:
        """Return a key of each subject; those that have none get one."""
        cluster.ensure_topic(self.topic, 1, _SETTINGS)
        for _ in range(_TRIES):
            self.follow(cluster, at_once=True)
            found = {subject: keys[0] for subject in subjects if (keys := self._of(subject))}
            missing = subjects - found.keys()
            if not missing:
                return found
            now = self._clock.wall_ms()
            produce(cluster, self.topic, [_record(subject, now) for subject in sorted(missing)])
        raise Unavailable(
            f"keys in {self.topic} are erased as soon as they are made; nothing was stored, send it again"
        )

    def _of(self, subject: str) -> list[_Key]:
        query = "SELECT id, secret FROM keys WHERE subject = ? ORDER BY id"
        with self._file.reading() as connection:
            return [_Key(*row) for row in connection.execute(query, (subject,))]

    # The topic

    def _catch_up(self, cluster: Cluster) -> None:
        try:
            topic_id = str(cluster.topic(self.topic).topic_id)
        except UnknownTopic:
            return
        while True:
            at = self._position()
            end = cluster.offsets(self.topic, {0: LATEST})[0]
            now = self._clock.wall_ms()
            if at.topic_id != topic_id or at.next_offset > end or now - at.read_ms > _TOO_OLD_MS:
                first = cluster.offsets(self.topic, {0: EARLIEST})[0]
                anew = _Position(topic_id, first, now, at.number + 1)
                if self._advance(at, anew):
                    self._take_in(cluster, anew, end, now)
            elif at.next_offset < end or now - at.read_ms > _NOTED_MS:
                self._take_in(cluster, at, end, now)
            else:
                return

    def _take_in(self, cluster: Cluster, at: _Position, end: int, now: int) -> None:
        """Read up to an end, unless another process does it meanwhile."""
        for found, behind in self._read(cluster, at.next_offset, end):
            to = at._replace(next_offset=behind)
            if not self._advance(at, to, found):
                return
            at = to
        self._advance(at, at._replace(next_offset=end, read_ms=now), whole=True)

    def _advance(
        self, at: _Position, to: _Position, found: Iterable[Record] = (), *, whole: bool = False
    ) -> bool:
        """Take in what was found between two positions; not if the file is at another one by now."""
        with self._file.writing() as connection:
            if _position(connection) != at:
                return False
            _apply(connection, found, to.number)
            if whole:
                missing = connection.execute("SELECT id FROM keys WHERE pass < ?", (to.number,))
                _drop(connection, missing.fetchall())
            connection.execute("DELETE FROM key_position")
            connection.execute("INSERT INTO key_position VALUES (?, ?, ?, ?)", to)
            return True

    def _position(self) -> _Position:
        with self._file.reading() as connection:
            return _position(connection)

    def _read(self, cluster: Cluster, position: int, end: int) -> Iterator[tuple[list[Record], int]]:
        empty = 0
        while position < end and empty < _EMPTY:
            fetched = cluster.retrying(lambda at=position: fetch(cluster, self.topic, 0, at))  # type: ignore[misc]
            behind = following(fetched, position)
            empty = 0 if behind > position else empty + 1
            yield [record for record, _ in committed_records(fetched, position)], behind
            position = behind


def _record(subject: str, now_ms: int) -> Record:
    value = json.dumps({"subject": subject, "key": b64encode(new_key()).decode()}, ensure_ascii=False)
    return Record(0, now_ms, os.urandom(16).hex().encode(), value.encode())


def _sealed(planned: Planned, keys: dict[str, _Key]) -> Planned:
    private = planned.private
    if private is None:
        return planned
    key = keys[private.subject or ""]
    # Nobody else has the event yet.
    object.__setattr__(planned.event, "key_id", key.id)
    return planned._replace(sealed=seal(key.secret, planned.event.id, private.text))


def _apply(connection: sqlite3.Connection, found: Iterable[Record], number: int) -> None:
    for record in found:
        identity = (record.key or b"").decode(errors="replace")
        if record.value is None:
            _drop(connection, connection.execute("SELECT id FROM keys WHERE id = ?", (identity,)).fetchall())
        elif (row := _parsed(record.value)) is not None:
            connection.execute("INSERT OR REPLACE INTO keys VALUES (?, ?, ?, ?)", (identity, *row, number))
        else:
            logger.warning(
                "the record at offset %d is no key of personal data, and is left out", record.offset
            )


def _parsed(value: bytes) -> tuple[str, bytes] | None:
    try:
        found: Any = json.loads(value)
        subject, secret = found["subject"], b64decode(found["key"], validate=True)
    except (ValueError, TypeError, KeyError):
        return None
    return (subject, secret) if isinstance(subject, str) and len(secret) == KEY_BYTES else None


def _drop(connection: sqlite3.Connection, ids: Iterable[tuple[str]]) -> None:
    """Forget keys, and the snapshots of all streams that have events sealed with one of them."""
    for each in ids:
        connection.execute("DELETE FROM keys WHERE id = ?", each)
        connection.execute(
            "DELETE FROM snapshots WHERE stream IN (SELECT stream FROM events WHERE key_id = ?)", each
        )
        connection.execute("UPDATE erasures SET count = count + 1")


def _position(connection: sqlite3.Connection) -> _Position:
    row = connection.execute("SELECT * FROM key_position").fetchone()
    return _Position() if row is None else _Position(*row)
