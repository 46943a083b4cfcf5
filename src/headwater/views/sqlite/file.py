"""The SQLite file of a view store: its tables, its connections, and one writer at a time.

The file is in WAL mode with `synchronous=FULL`: readers never wait for the writer, and a commit returns
when the disk has it. A writer takes the write lock with BEGIN IMMEDIATE; another one, in this process
or any other, waits for it up to `_BUSY_SECONDS`.

Each thread reads through a connection of its own. `version` has one more, which never writes:
`PRAGMA data_version` tells only of commits through other connections.
"""

from __future__ import annotations

import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwater.views.errors import ViewError

__all__ = ["SqliteFile"]

_BUSY_SECONDS = 30.0
_APPLICATION_ID = 0x48576174  # "HWat": `file views.db` shows it
_SCHEMA_VERSION = 2

# Tokens grow by one in each view. `floor` is the last token that the feed has forgotten. Times are in
# milliseconds: `at` is that of the last change, `written` that of the last write, which may have changed nothing.
_SCHEMA = """
CREATE TABLE store (identity TEXT NOT NULL);
CREATE TABLE views (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, key TEXT NOT NULL,
    token INTEGER NOT NULL DEFAULT 0, floor INTEGER NOT NULL DEFAULT 0, rows INTEGER NOT NULL DEFAULT 0,
    taken INTEGER NOT NULL DEFAULT 0, at INTEGER NOT NULL DEFAULT 0, ttl INTEGER,
    indexes TEXT NOT NULL DEFAULT '[]', history INTEGER, history_since INTEGER
);
CREATE TABLE rows (
    view INTEGER NOT NULL, key TEXT NOT NULL, row TEXT NOT NULL, token INTEGER NOT NULL,
    at INTEGER NOT NULL DEFAULT 0, written INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (view, key)
) WITHOUT ROWID;
CREATE TABLE changes (
    view INTEGER NOT NULL, token INTEGER NOT NULL, key TEXT NOT NULL, row TEXT,
    PRIMARY KEY (view, token)
) WITHOUT ROWID;
CREATE TABLE epochs (query TEXT PRIMARY KEY, epoch INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE statuses (name TEXT PRIMARY KEY, status TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE deliveries (
    view INTEGER NOT NULL, token INTEGER NOT NULL, key TEXT NOT NULL, row TEXT NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0, next_at REAL NOT NULL DEFAULT 0, error TEXT,
    dead INTEGER NOT NULL DEFAULT 0, held INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (view, token)
) WITHOUT ROWID;
CREATE INDEX deliveries_by_time ON deliveries (view, dead, next_at);
"""
_HISTORY = """
CREATE TABLE history (
    view INTEGER NOT NULL, key TEXT NOT NULL, token INTEGER NOT NULL, since INTEGER NOT NULL,
    until INTEGER NOT NULL, row TEXT NOT NULL, PRIMARY KEY (view, key, token)
) WITHOUT ROWID;
CREATE INDEX history_by_time ON history (view, until);
"""
_INCIDENTS = """
CREATE TABLE incidents (
    view INTEGER NOT NULL, name TEXT NOT NULL, until REAL NOT NULL, held INTEGER NOT NULL,
    token INTEGER NOT NULL, key TEXT NOT NULL, row TEXT NOT NULL, PRIMARY KEY (view, name)
) WITHOUT ROWID;
CREATE INDEX incidents_by_time ON incidents (view, until);
CREATE INDEX incidents_held ON incidents (view) WHERE held > 0;
"""
# What a file of an earlier version lacks.
_SINCE_1 = """
ALTER TABLE views ADD COLUMN at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE views ADD COLUMN ttl INTEGER;
ALTER TABLE views ADD COLUMN indexes TEXT NOT NULL DEFAULT '[]';
ALTER TABLE views ADD COLUMN history INTEGER;
ALTER TABLE views ADD COLUMN history_since INTEGER;
ALTER TABLE rows ADD COLUMN at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE rows ADD COLUMN written INTEGER NOT NULL DEFAULT 0;
ALTER TABLE deliveries ADD COLUMN held INTEGER NOT NULL DEFAULT 0;
"""

_PREPARE = """
CREATE TEMP TABLE incoming (key TEXT NOT NULL, row TEXT);
CREATE TEMP TABLE delta (n INTEGER PRIMARY KEY, key TEXT NOT NULL, row TEXT, existed INTEGER NOT NULL);
"""


class SqliteFile:
    """Connections to one file; transactions through `write`, everything else through `read`."""

    def __init__(self, path: str) -> None:
        self.path = Path(path).absolute()
        self._opened: list[sqlite3.Connection] = []
        self._lock = threading.RLock()
        # Apart from the writer's, so that whoever watches for commits never waits for one.
        self._watching = threading.Lock()
        self._local = threading.local()
        self._closed = False
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = self._connect()
            self._create()
            self._writer.executescript(_PREPARE)
            [self.identity] = self._writer.execute("SELECT identity FROM store").fetchone()
            self._watcher = self._connect()
        except (OSError, sqlite3.Error) as error:
            self.close()
            raise ViewError(f"cannot open {self.path} as a view store: {error}") from error
        except ViewError:
            self.close()
            raise

    def version(self) -> int:
        """Return a number that differs after any process committed."""
        with self._watching, self._translated():
            [number] = self._watcher.execute("PRAGMA data_version").fetchone()
        return int(number)

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Hold the write lock: what is done inside is committed together, or not at all."""
        with self._lock, self._translated():
            self._check_open()
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
                self._writer.execute("COMMIT")
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Read one state of the file, whatever is committed meanwhile."""
        with self._translated():
            connection = self._reader()
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                connection.execute("ROLLBACK")

    def fetch(self, sql: str, parameters: tuple[object, ...]) -> list[Any]:
        """Return the rows of one statement, which sees one state of the file by itself."""
        with self._translated():
            return self._reader().execute(sql, parameters).fetchall()

    def close(self) -> None:
        """Close every connection; a thread that still reads gets an error."""
        with self._lock:
            self._closed = True
            while self._opened:
                self._opened.pop().close()

    def _reader(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            with self._lock:
                self._check_open()
                connection = self._local.connection = self._connect()
        return connection

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, isolation_level=None, timeout=_BUSY_SECONDS, check_same_thread=False
        )
        self._opened.append(connection)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA cache_size = -32768")
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        # The write-ahead log of one huge commit does not stay that large for ever.
        connection.execute("PRAGMA journal_size_limit = 67108864")
        return connection

    def _create(self) -> None:
        """Make the tables in a new file, and refuse a file that is not ours or from a later version."""
        connection = self._writer
        # Two processes may open a new file at once: the mode is set before the lock can be taken.
        self._turn_on_write_ahead_log()
        connection.execute("BEGIN IMMEDIATE")
        [found] = connection.execute("PRAGMA user_version").fetchone()
        [tables] = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if found == 0 and tables == 0:
            self._execute(_SCHEMA + _HISTORY + _INCIDENTS)
            connection.execute("INSERT INTO store VALUES (?)", (uuid.uuid4().hex[:12],))
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
        elif (ours := connection.execute("PRAGMA application_id").fetchone()[0]) != _APPLICATION_ID:
            raise ViewError(f"{self.path} is another program's database ({ours:#x}): name another file")
        elif found > _SCHEMA_VERSION:
            raise ViewError(f"{self.path} was written by a later version of Headwater: upgrade this one")
        elif found < _SCHEMA_VERSION:
            self._execute(_SINCE_1 + _HISTORY + _INCIDENTS)
            connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
        connection.execute("COMMIT")

    def _turn_on_write_ahead_log(self) -> None:
        """Set the journal's mode; while another process has the lock, SQLite refuses that instead of waiting."""
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                self._writer.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY  # the rest of the code says why
                if not busy or time.monotonic() > deadline:
                    raise
            time.sleep(0.01)

    def _execute(self, statements: str) -> None:
        for statement in statements.split(";\n"):  # `executescript` would commit first
            self._writer.execute(statement)

    def _check_open(self) -> None:
        if self._closed:
            raise ViewError(f"the view store {self.path} is closed")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise ViewError(f"the view store {self.path} failed: {error}") from error
