"""The Postgres database of a view store: its tables, its connections, and what goes wrong with either.

Everything is in the schema `headwater`. Each thread has a connection of its own for reading and one for
writing. One that broke is replaced, and what was under way is done once more: reading changes nothing, and a
commit that had arrived after all is known by its epoch.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

from headwater.views.errors import StoreUnavailable, ViewError
from headwater.views.store import shown

try:
    import psycopg
except ImportError:
    raise ViewError("views in Postgres need its driver: pip install 'headwater[postgres]'") from None

__all__ = ["Cursor", "Database"]

Cursor = Any
T = TypeVar("T")

_VERSION = 1
_CONNECT_SECONDS = 10
_CREATE_LOCK = 0x48576174  # two processes may open a new database at once

# Tokens grow by one in each view. `floor` is the last token that the feed has forgotten, `version` grows with
# every commit. Keys are compared byte by byte, as in every store. A row is json, which keeps its text as it came.
#
# The rows of each view are a table of their own, `rows_ID`: an index of one view then costs the others nothing, and
# a view without one is changed in place (HOT), for which its pages are filled to the half. The feed is kept in
# pieces of hundreds of changes, tokens `first` to `last`, which cost a commit a fraction of as many lines.
_SCHEMA = """
CREATE SCHEMA IF NOT EXISTS headwater;
CREATE TABLE headwater.store (identity text NOT NULL, version int NOT NULL);
CREATE TABLE headwater.views (
    id serial PRIMARY KEY, name text NOT NULL UNIQUE COLLATE "C", key text NOT NULL,
    token bigint NOT NULL DEFAULT 0, floor bigint NOT NULL DEFAULT 0, rows bigint NOT NULL DEFAULT 0,
    taken bigint NOT NULL DEFAULT 0, at bigint NOT NULL DEFAULT 0, ttl bigint,
    indexes text NOT NULL DEFAULT '[]', history bigint, history_since bigint, version bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
CREATE TABLE headwater.changes (
    view int NOT NULL, first bigint NOT NULL, last bigint NOT NULL, keys text[] NOT NULL, rows text[] NOT NULL,
    PRIMARY KEY (view, last)
);
CREATE TABLE headwater.history (
    view int NOT NULL, key text NOT NULL COLLATE "C", token bigint NOT NULL, since bigint NOT NULL,
    until bigint NOT NULL, row json NOT NULL, PRIMARY KEY (view, key, token)
);
CREATE INDEX history_by_time ON headwater.history (view, until);
CREATE TABLE headwater.epochs (query text PRIMARY KEY, epoch bigint NOT NULL) WITH (fillfactor = 50);
CREATE TABLE headwater.statuses (
    name text PRIMARY KEY COLLATE "C", status text NOT NULL, version bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
CREATE TABLE headwater.deliveries (
    view int NOT NULL, token bigint NOT NULL, key text NOT NULL, row json NOT NULL, tries int NOT NULL DEFAULT 0,
    next_at float8 NOT NULL DEFAULT 0, error text, dead boolean NOT NULL DEFAULT false,
    held bigint NOT NULL DEFAULT 0, PRIMARY KEY (view, token)
);
CREATE INDEX deliveries_by_time ON headwater.deliveries (view, dead, next_at);
CREATE TABLE headwater.incidents (
    view int NOT NULL, name text NOT NULL COLLATE "C", until float8 NOT NULL, held bigint NOT NULL,
    token bigint NOT NULL, key text NOT NULL, row text NOT NULL, PRIMARY KEY (view, name)
);
CREATE INDEX incidents_by_time ON headwater.incidents (view, until);
CREATE INDEX incidents_held ON headwater.incidents (view) WHERE held > 0;
CREATE FUNCTION headwater.rank(value json) RETURNS int IMMUTABLE PARALLEL SAFE LANGUAGE sql AS $$
    SELECT CASE coalesce(json_typeof(value), 'null')
        WHEN 'null' THEN 0 WHEN 'number' THEN 1 WHEN 'boolean' THEN 1 ELSE 2 END
$$;
CREATE FUNCTION headwater.number(value json) RETURNS numeric IMMUTABLE PARALLEL SAFE LANGUAGE sql AS $$
    SELECT CASE json_typeof(value)
        WHEN 'number' THEN (value #>> '{}')::numeric WHEN 'boolean' THEN (value #>> '{}')::boolean::int END
$$;
CREATE FUNCTION headwater.prefix(value json) RETURNS text IMMUTABLE PARALLEL SAFE LANGUAGE sql AS $$
    SELECT CASE WHEN json_typeof(value) IN ('string', 'object', 'array') THEN left(value #>> '{}', 500) END
$$;
"""

# A commit that returned has to be on disk, whatever the server's default is. What is staged is to stay in memory;
# and to compile a statement takes longer than ours take.
_OPTIONS = (
    "-c synchronous_commit=on -c client_min_messages=warning -c jit=off -c work_mem=64MB -c temp_buffers=64MB"
)

_EXISTS = "SELECT FROM pg_tables WHERE schemaname = 'headwater' AND tablename = 'store'"

_STAGING = """
CREATE TEMP TABLE IF NOT EXISTS incoming (key text NOT NULL COLLATE "C", row json) ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS delta (
    n bigint NOT NULL, key text NOT NULL COLLATE "C", row json, existed boolean NOT NULL
) ON COMMIT DELETE ROWS;
"""


class Database:
    """Connections to one database; `read` and `write` run a function in a transaction."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.shown = shown(url)
        self._opened: list[tuple[threading.Thread, Any]] = []
        self._lock = threading.Lock()
        self._local = threading.local()
        self._closed = False
        try:
            self.identity = self.write(_create)
        except BaseException:
            self.close()
            raise

    def read(self, work: Callable[[Cursor], T]) -> T:
        """Run a function that sees one state of the database, whatever is committed meanwhile."""
        return self._twice("reader", work)

    def write(self, work: Callable[[Cursor], T]) -> T:
        """Run a function whose changes are committed together, or not at all."""
        return self._twice("writer", work)

    def fetch(self, sql: str, parameters: tuple[object, ...]) -> list[Any]:
        """Return the rows of one statement, which needs no transaction around it."""

        def work(cursor: Cursor) -> list[Any]:
            cursor.execute(sql, parameters)
            return list(cursor.fetchall())

        return self._twice("single", work)

    def close(self) -> None:
        """Close every connection; a thread that still uses one gets an error."""
        with self._lock:
            self._closed = True
            while self._opened:
                self._opened.pop()[1].close()

    def _twice(self, use: str, work: Callable[[Cursor], T]) -> T:
        try:
            return self._once(use, work)
        except StoreUnavailable:
            if self._closed or not hasattr(self._local, use):
                raise
            # The database was started again since, or somebody cut the connection.
            del self._local.__dict__[use]
            return self._once(use, work)

    def _once(self, use: str, work: Callable[[Cursor], T]) -> T:
        connection = self._connection(use)
        try:
            try:
                with connection.cursor() as cursor:
                    result = work(cursor)
                connection.commit()
                return result
            except BaseException:
                if not connection.closed:
                    connection.rollback()
                raise
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            raise StoreUnavailable(f"the view store {self.shown} does not answer: {_line(error)}") from error
        except psycopg.Error as error:
            raise ViewError(f"the view store {self.shown} failed: {_line(error)}") from error

    def _connection(self, use: str) -> Any:
        if self._closed:
            raise ViewError(f"the view store {self.shown} is closed")
        connection = getattr(self._local, use, None)
        if connection is not None and not connection.closed:
            return connection
        connection = self._connect()
        if use == "writer":
            connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        elif use == "reader":
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
        else:
            connection.autocommit = True
        with self._lock:
            for thread, other in self._opened:
                if not thread.is_alive():
                    other.close()
            self._opened = [(thread, other) for thread, other in self._opened if not other.closed]
            self._opened.append((threading.current_thread(), connection))
        setattr(self._local, use, connection)
        return connection

    def _connect(self) -> Any:
        try:
            return psycopg.connect(
                self.url,
                connect_timeout=_CONNECT_SECONDS,
                application_name="headwater views",
                client_encoding="UTF8",
                # Parameters are put into the statement here: an index on an expression is found for a query
                # with the same text, and statements that make one take parameters too.
                cursor_factory=psycopg.ClientCursor,
                options=_OPTIONS,
            )
        except psycopg.ProgrammingError as error:
            raise ViewError(f"{self.shown} is no address of a Postgres database: {_line(error)}") from error
        except psycopg.OperationalError as error:
            raise StoreUnavailable(
                f"cannot open the view store {self.shown}: {_line(error)}: {_fix(str(error))}"
            ) from error


def stage(cursor: Cursor) -> None:
    """Make the temporary tables of this connection, where they are missing."""
    cursor.execute(_STAGING)


def _create(cursor: Cursor) -> str:
    cursor.execute(_EXISTS)
    if cursor.fetchone() is None:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATE_LOCK,))
        cursor.execute(_EXISTS)  # somebody may have made it while we waited
        if cursor.fetchone() is None:
            try:
                cursor.execute(_SCHEMA)
            except psycopg.errors.InsufficientPrivilege as error:
                raise ViewError(
                    f"the user may not make the schema headwater ({_line(error)}): make it and give it to the "
                    "user, CREATE SCHEMA headwater AUTHORIZATION …"
                ) from error
            cursor.execute("INSERT INTO headwater.store VALUES (%s, %s)", (uuid.uuid4().hex[:12], _VERSION))
    cursor.execute("SELECT identity, version FROM headwater.store")
    identity, version = cursor.fetchone()
    if version > _VERSION:
        raise ViewError("the schema headwater was made by a later version of Headwater: upgrade this one")
    return str(identity)


def _compress(cursor: Cursor) -> None:
    """Let the feed be compressed in the quick way, where Postgres was built with it."""
    cursor.execute("SAVEPOINT compressing")
    try:
        for column in ("keys", "rows"):
            cursor.execute(f"ALTER TABLE headwater.changes ALTER COLUMN {column} SET COMPRESSION lz4")
    except psycopg.Error:
        cursor.execute("ROLLBACK TO SAVEPOINT compressing")


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__


def _fix(message: str) -> str:
    if "password authentication failed" in message or "no password supplied" in message:
        return "check the user and the password, postgresql://USER:PASSWORD@HOST/DATABASE"
    if "does not exist" in message and "database" in message:
        return "make the database with createdb, or name another"
    if "no pg_hba.conf entry" in message:
        return "let this machine in with a line in the server's pg_hba.conf"
    return "check the host and the port, and that Postgres runs there"
