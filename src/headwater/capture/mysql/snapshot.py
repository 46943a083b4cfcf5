"""The rows of tables as they were at one place in the binary log.

All tables are read in one transaction that sees the server as it was at that place. MariaDB says for such a transaction
where it is in the log. MySQL does not, so there everything stands still for the moment in which the transaction begins
and the place is asked for. Meanwhile no table can be altered, so that the columns found are those at that place.

The transaction is gone when the connection is: a snapshot that was interrupted goes on in a new one, at a later place.
What was read at which place is kept in the position (see `offset.Piece`), and the changes in between are taken for
those rows alone that had been read before them.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from headwater.capture.change import Batch, Change, Row, TableSchema
from headwater.capture.mysql.catalog import Described, describe, log_end
from headwater.capture.mysql.config import Config
from headwater.capture.mysql.connection import Connection, identifier
from headwater.capture.mysql.keys import after
from headwater.capture.mysql.offset import Gtids, Offset, Piece, Place
from headwater.capture.mysql.tables import Table, dump_tables, load_tables
from headwater.capture.mysql.values import from_text, select_expression
from headwater.capture.source import CaptureError, TryAgain

__all__ = ["read_rows", "read_snapshot", "unread"]

_BATCH_ROWS = 5000
_BATCH_BYTES = 1 << 20
_LOCK_SECONDS = 10
_HOLD_SECONDS = 0.25
"""How long writers may have to wait until we have our lock; they go on then, and we try again."""
_HOLD_TRIES = 100


@dataclass(frozen=True)
class _View:
    """The server at one place."""

    place: Place
    gtid: str | None
    tables: dict[str, Described]


def unread(offset: Offset | None, tables: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    """Return the tables of which a snapshot has still to read something."""
    if offset is None:
        return list(tables)
    known = {str(table) for table in load_tables(offset.tables)}
    found = []
    for schema, name in tables:
        pieces = (offset.snapshot or {}).get(f"{schema}.{name}")
        if (pieces is None and f"{schema}.{name}" not in known) or (
            pieces is not None and (not pieces or pieces[-1].until is not None)
        ):
            found.append((schema, name))
    return found


def read_snapshot(
    connection: Connection, offset: Offset | None, tables: tuple[tuple[str, str], ...]
) -> Iterator[Batch]:
    """Yield the rows that have not been read, until all have; each position can be gone on from."""
    wanted = unread(offset, tables)
    view = _begin(connection, wanted)
    offset = _joined(offset, view)
    server_id = int(connection.run("SELECT @@server_id")[0][0])
    for name, described in view.tables.items():
        connection.run("SAVEPOINT before_table")
        for rows in _rows(connection, described, _until(offset, name)):
            now = time.time_ns() // 1000
            source = {"server_id": server_id, "gtid": view.gtid, "file": view.place[0], "pos": view.place[1]}
            public = described.table.public
            changes = [Change("r", public, None, row, now, None, source) for row in rows]
            last = tuple((rows[-1][place] or b"").decode() for place in described.table.key_indexes)
            offset = _with_piece(offset, name, Piece(last, view.place))
            yield Batch(changes, offset.position)
        # MySQL lets others alter the table again; MariaDB does when the transaction ends.
        connection.run("ROLLBACK TO SAVEPOINT before_table")
        offset = _with_piece(offset, name, Piece(None, view.place))
    connection.run("COMMIT")
    yield Batch([], offset.settled().position, is_behind=True)


def read_rows(config: Config) -> Iterator[tuple[TableSchema, list[Row]]]:
    """Yield the rows of a table as they are now, without asking where that is in the log."""
    with Connection(config) as connection:
        connection.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.run("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        for described in describe(connection, config.tables):
            yield described.table.public, []
            for rows in _rows(connection, described, None):
                yield described.table.public, rows


def _joined(offset: Offset | None, view: _View) -> Offset:
    """Return where to go on with tables that are read at the place of a view."""
    if offset is None:
        tables = dump_tables(described.table for described in view.tables.values())
        return Offset(*view.place, view.gtid, tables, snapshot=dict.fromkeys(view.tables, ()))
    known = {str(table): table for table in load_tables(offset.tables)}
    pieces = dict(offset.snapshot or {})
    for name, described in view.tables.items():
        if not pieces.setdefault(name, ()):
            known[name] = described.table
        elif known[name].key != described.table.key:
            raise CaptureError(
                f"the key of {name} was changed while its snapshot was interrupted: `headwater capture snapshot` takes"
                " a new one"
            )
    return replace(offset, tables=dump_tables(known.values()), snapshot=pieces)


def _until(offset: Offset, name: str) -> tuple[str, ...] | None:
    pieces = (offset.snapshot or {})[name]
    return pieces[-1].until if pieces else None


def _with_piece(offset: Offset, name: str, piece: Piece) -> Offset:
    pieces = list((offset.snapshot or {})[name])
    if pieces and pieces[-1].place == piece.place:
        pieces.pop()
    return replace(offset, snapshot={**(offset.snapshot or {}), name: (*pieces, piece)})


def _begin(connection: Connection, wanted: list[tuple[str, str]]) -> _View:
    guard = Connection(connection.config)
    try:
        connection.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        if connection.is_mariadb:
            guard.run(f"SET lock_wait_timeout = {_LOCK_SECONDS}")
            guard.run("START TRANSACTION")
            for table in wanted:
                guard.run(f"SELECT 1 FROM {identifier(*table)} LIMIT 0")
            connection.run("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            return _mariadb_view(connection, wanted)
        _hold(guard, connection, wanted)
        connection.run("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        return _mysql_view(connection, wanted)
    finally:
        guard.close()


def _described(connection: Connection, wanted: list[tuple[str, str]]) -> dict[str, Described]:
    return {str(described.table): described for described in describe(connection, wanted)}


def _mariadb_view(connection: Connection, wanted: list[tuple[str, str]]) -> _View:
    status = {str(row[0]): row[1] for row in connection.texts("SHOW STATUS LIKE 'binlog_snapshot_%'")}
    file = status.get("Binlog_snapshot_file")
    if not file:
        raise CaptureError(f"{connection.config} does not say where its snapshot is: start it with log_bin")
    place = file, int(status["Binlog_snapshot_position"] or 4)
    gtid = connection.texts(f"SELECT BINLOG_GTID_POS({connection.literal(place[0])}, {place[1]})")[0][0]
    return _View(place, gtid or "", _described(connection, wanted))


def _hold(guard: Connection, other: Connection, wanted: list[tuple[str, str]]) -> None:
    """Let nobody write until the connection is closed; the other one is idle until this returns."""

    def give_up() -> None:
        with suppress(CaptureError):
            other.run(f"KILL QUERY {guard.id}")

    for tries_left in reversed(range(_HOLD_TRIES)):
        # The server's own limit, lock_wait_timeout, is a second at least.
        timer = threading.Timer(_HOLD_SECONDS, give_up)
        timer.start()
        try:
            return _lock(guard, wanted)
        except TryAgain:
            # A statement that waits for a row is waited for, and whoever holds that row may be waiting for us to let
            # writers go on, which the server does not notice.
            if not tries_left:
                raise
        finally:
            timer.cancel()
            timer.join()
        time.sleep(random.uniform(0.01, 0.25))


def _lock(guard: Connection, wanted: list[tuple[str, str]]) -> None:
    try:
        guard.run("FLUSH TABLES WITH READ LOCK")
        return
    except TryAgain:
        raise
    except CaptureError:
        # Without the privilege RELOAD, as on hosted servers, the tables themselves will do.
        statement = "LOCK TABLES " + ", ".join(f"{identifier(*table)} READ" for table in wanted)
    try:
        guard.run(statement)
    except TryAgain:
        raise
    except CaptureError as error:
        user = guard.config.user
        raise CaptureError(
            f"{guard.config}: a snapshot needs a moment in which nobody writes, and this user may not have one: GRANT"
            f" RELOAD ON *.* TO '{user}', or GRANT LOCK TABLES ON {identifier(wanted[0][0])}.* TO '{user}'"
        ) from error


def _mysql_view(connection: Connection, wanted: list[tuple[str, str]]) -> _View:
    place = log_end(connection)
    has_gtids = connection.texts("SELECT @@global.gtid_mode")[0][0] == "ON"
    gtid = str(Gtids(connection.texts("SELECT @@global.gtid_executed")[0][0] or "")) if has_gtids else None
    return _View(place, gtid, _described(connection, wanted))


def _rows(
    connection: Connection, described: Described, behind: tuple[str, ...] | None
) -> Iterator[list[Row]]:
    table = described.table
    columns = ", ".join(select_expression(field) for field in table.fields)
    order = ", ".join(identifier(name) for name in table.key)
    # The server would rather sort a whole table than go through an index that is not the primary key.
    index = (
        "" if described.index == "PRIMARY" else f" FORCE INDEX FOR ORDER BY ({identifier(described.index)})"
    )
    where = f" WHERE {after(table, behind, connection.literal)}" if behind is not None else ""
    place = identifier(table.schema, table.name)
    rows: list[Row] = []
    size = 0
    read = _reader(table)
    for packets in connection.stream(f"SELECT {columns} FROM {place}{index}{where} ORDER BY {order}"):
        for packet in packets:
            rows.append(read(packet))
            size += len(packet)
            if len(rows) >= _BATCH_ROWS or size >= _BATCH_BYTES:
                yield rows
                rows, size = [], 0
    if rows:
        yield rows


class _reader:  # noqa: N801  # called like the function that it is
    """Makes a row of the packet of one."""

    def __init__(self, table: Table) -> None:
        self._made = [from_text(field) for field in table.fields]

    def __call__(self, packet: bytes) -> Row:
        at = 0
        row: list[bytes] = []
        for made in self._made:
            size = packet[at]
            at += 1
            if size > 250:
                if size == 251:
                    row.append(b"null")
                    continue
                width = {252: 2, 253: 3, 254: 8}[size]
                size = int.from_bytes(packet[at : at + width], "little")
                at += width
            row.append(made(packet[at : at + size]))
            at += size
        return tuple(row)
