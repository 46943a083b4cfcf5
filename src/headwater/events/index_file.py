"""The file of an index: SQLite in WAL mode, thrown away without loss.

`synchronous=NORMAL`: a commit does not wait for the disk, and after a power loss the file is as it was at some
earlier commit, rows and positions together. The log then brings it up to date, which is what it is there for.

Whoever has the file open holds a shared lock beside it; whoever throws it away wants the lock alone.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.events.errors import StaleIndex

__all__ = ["IndexFile", "discard"]

_BUSY_SECONDS = 30.0
_SCHEMAS = (
    """
CREATE TABLE topic (name TEXT NOT NULL, id TEXT NOT NULL, partitions INTEGER NOT NULL);
CREATE TABLE positions (
    partition INTEGER PRIMARY KEY, next_offset INTEGER NOT NULL DEFAULT 0, skipped INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE events (
    partition INTEGER NOT NULL, "offset" INTEGER NOT NULL, stream TEXT NOT NULL, version INTEGER NOT NULL,
    time_ms INTEGER NOT NULL, command_id TEXT, correlation_id TEXT, value BLOB NOT NULL,
    PRIMARY KEY (partition, "offset")
) WITHOUT ROWID;
CREATE UNIQUE INDEX events_by_stream ON events (stream, version, time_ms);
CREATE INDEX events_by_command ON events (stream, command_id) WHERE command_id IS NOT NULL;
CREATE INDEX events_by_correlation ON events (correlation_id) WHERE correlation_id IS NOT NULL;
CREATE TABLE snapshots (
    fold TEXT NOT NULL, stream TEXT NOT NULL, version INTEGER NOT NULL, state TEXT NOT NULL,
    PRIMARY KEY (fold, stream, version)
) WITHOUT ROWID;
""",
    """
ALTER TABLE events ADD COLUMN key_id TEXT;
CREATE INDEX events_by_key ON events (key_id) WHERE key_id IS NOT NULL;
CREATE TABLE keys (
    id TEXT PRIMARY KEY, subject TEXT NOT NULL, secret BLOB NOT NULL, pass INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX keys_by_subject ON keys (subject);
CREATE TABLE key_position (
    topic_id TEXT NOT NULL, next_offset INTEGER NOT NULL, read_ms INTEGER NOT NULL, pass INTEGER NOT NULL
);
CREATE TABLE erasures (count INTEGER NOT NULL);
INSERT INTO erasures VALUES (0)
""",
    "CREATE INDEX keys_by_pass ON keys (pass)",
)
"""What each format adds to the one before."""
_FORMAT = len(_SCHEMAS)


class IndexFile:
    """One writing connection, and as many for reading as there are readers at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(path, fcntl.LOCK_SH)
        self._writing = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        try:
            self._writer = self._connect()
            # What is deleted is to be gone from the file: keys, and snapshots of what they have opened.
            self._writer.execute("PRAGMA secure_delete=ON")
            self._make()
        except sqlite3.DatabaseError as error:
            raise StaleIndex(f"the index {path} does not read ({error}): {_FIX}") from None

    def close(self) -> None:
        """Close every connection that is not in use."""
        with self._writing:
            self._writer.close()
            while self._idle:
                self._idle.pop().close()
        os.close(self._lock)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection that sees one state of the file for the length of a query."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connect()
        try:
            yield connection
        finally:
            self._idle.append(connection)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Lend the writing connection in a transaction, which ends with the block."""
        with self._writing:
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
            except BaseException:
                self._writer.execute("ROLLBACK")
                raise
            self._writer.execute("COMMIT")

    def settle(self) -> None:
        """Have what was deleted gone from the log that SQLite keeps beside the file, unless somebody reads there."""
        with self._writing:
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        return connection

    def _make(self) -> None:
        with self.writing() as connection:
            [found] = connection.execute("PRAGMA user_version").fetchone()
            if not 0 <= found <= _FORMAT:
                raise StaleIndex(f"the index {self.path} has format {found}, not {_FORMAT}: {_FIX}")
            for schema in _SCHEMAS[found:]:
                for statement in schema.split(";"):
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {_FORMAT}")


_FIX = "rebuild it with `headwater events rebuild-index`"


def discard(path: Path) -> None:
    """Throw an index away; raise `StaleIndex` where a store has it open."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = _locked(path, fcntl.LOCK_EX)
    try:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
    finally:
        os.close(lock)


def _locked(path: Path, kind: int) -> int:
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise StaleIndex(
            f"the index {path} is in use by another process: stop it, or give another directory"
        ) from None
    return lock
