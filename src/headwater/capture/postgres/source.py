"""A Postgres database that is followed: a snapshot with a new slot, then the stream from where the slot begins.

describe ── check server and tables
follow ──┬─ no position: publication, tables locked, slot and its snapshot ── read tables
         └─ a position: check that the slot still has what comes after it
         then whatever is not read yet (a snapshot that was cut off, a table added later), then the stream
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from dataclasses import replace

from headwater.capture.change import Batch, Change, Position, TableSchema
from headwater.capture.postgres.catalog import Catalog, Table
from headwater.capture.postgres.config import Config
from headwater.capture.postgres.connection import (
    Session,
    connect,
    replication_command,
    rows,
    sentences,
)
from headwater.capture.postgres.offset import Offset, TableState, Visible, lsn_number, lsn_text
from headwater.capture.postgres.pgoutput import Relation
from headwater.capture.postgres.publication import check_told, ensure_publication
from headwater.capture.postgres.slot import (
    check_followable,
    check_free,
    check_given,
    create_slot,
    drop_slot,
    find_slot,
)
from headwater.capture.postgres.snapshot import (
    begin_reading,
    check_not_rewritten,
    lock,
    read_table,
    visible_now,
)
from headwater.capture.postgres.stream import Stream
from headwater.capture.postgres.transactions import Transactions
from headwater.capture.source import CaptureError

__all__ = ["PostgresSource"]


class PostgresSource:
    """One database; see `headwater.capture.source.Source`."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._session: Session | None = None
        self._replication: Session | None = None
        self._reader: Session | None = None
        self._stream: Stream | None = None
        self._tables: dict[int, Table] = {}

    def describe(self) -> list[TableSchema]:
        """Return the captured tables as they are now, or raise why they cannot be followed."""
        if self._session is None:
            self._session = connect(self._config)
        with sentences(self._config, "looking at the tables"):
            self._catalog = Catalog(self._config, self._session)
            self._catalog.check_server()
            return [table.schema for table in self._look()]

    def follow(self, position: Position | None) -> Iterator[Batch]:
        """Yield the rows of tables that were not read yet, then the changes behind the position."""
        if self._session is None:
            self.describe()
        with sentences(self._config, "preparing to follow it"):
            self._replication = connect(self._config, replication=True)
            value = replication_command(self._replication, "IDENTIFY_SYSTEM").get_value(0, 0)
            system = (value or b"").decode()
        if position is None:
            offset = yield from self._start(system)
        else:
            offset = self._resume(Offset.parse(position), system)
        offset = yield from self._read_others(offset)
        yield from self._follow(offset)

    def acknowledge(self, position: Position) -> None:
        """Let the server forget the log before a position."""
        if self._stream is not None:
            self._stream.confirm(Offset.parse(position).lsn)

    def close(self) -> None:
        """End the sessions; the slot stays."""
        if self._stream is not None:
            self._stream.close()
        for session in (self._replication, self._reader, self._session):
            if session is not None:
                session.close()
        self._stream = self._replication = self._reader = self._session = None

    @property
    def _asked(self) -> Session:
        assert self._session is not None
        return self._session

    def _look(self) -> list[Table]:
        tables = self._catalog.tables()
        self._tables = {table.oid: table for table in tables}
        return tables

    def _start(self, system: str) -> Generator[Batch, None, Offset]:
        """Make what is missing in the database, and read all tables if the slot is new."""
        config, session = self._config, self._asked
        assert self._replication is not None
        with sentences(config, "taking the first snapshot"):
            slot = find_slot(config, session)
            if slot is not None:
                check_free(config, slot)
                check_given(config, slot, self._catalog.database)
                if config.owns_slot:  # of a capture that was started over, or did not get far
                    drop_slot(config, session)
                    slot = None
            ensure_publication(config, session, [*self._tables.values()], self._catalog.server_version)
            if slot is not None:
                # Given: it tells from here on what a snapshot that is taken now does not show.
                advanced = (
                    "SELECT end_lsn::text FROM pg_replication_slot_advance(%s, pg_current_wal_insert_lsn())"
                )
                [(lsn,)] = rows(session, advanced, (config.slot,))
                return Offset(system, lsn_number(lsn))
            new = create_slot(config, session, self._replication)
            offset = Offset(system, new.lsn)
            tables = self._lock([*self._tables.values()], new.snapshot)
            check_not_rewritten(self._locked, tables)
            return (yield from self._read(tables, offset, None))

    def _resume(self, offset: Offset, system: str) -> Offset:
        """Return where to go on, after looking whether that is possible."""
        config, session = self._config, self._asked
        if offset.system != system:
            raise CaptureError(
                f"{config.place} is another server than the one that was followed (system {system}, not"
                f" {offset.system}): `headwater capture snapshot` reads its tables anew, or give the other's address"
            )
        with sentences(config, "looking for the slot"):
            [(end,)] = rows(session, "SELECT pg_current_wal_insert_lsn()::text")
            if lsn_number(end) < offset.lsn:
                # The server would wait in silence until its log gets there, and never tell what is in between.
                raise CaptureError(
                    f"the log of {config.place} ends at {end}, before {lsn_text(offset.lsn)}, up to where it was"
                    " followed: the server was restored from a backup, or lost what it had written;"
                    " `headwater capture snapshot` reads its tables anew"
                )
            slot = check_followable(config, find_slot(config, session), offset.lsn)
            check_free(config, slot)
            tables = [*self._tables.values()]
            followed = [
                table
                for table in tables
                if (state := offset.tables.get(str(table.schema))) and state.oid == table.oid
            ]
            ensure_publication(config, session, tables, self._catalog.server_version, followed=followed)
        captured = {str(table.schema) for table in self._tables.values()}
        return replace(
            offset, tables={name: state for name, state in offset.tables.items() if name in captured}
        )

    def _read_others(self, offset: Offset) -> Generator[Batch, None, Offset]:
        """Read tables that no snapshot has read: cut off, captured later, or made anew under the name of another."""
        for table in [*self._tables.values()]:
            name = str(table.schema)
            state = offset.tables.get(name)
            if state is not None and state.oid == table.oid:
                continue
            with sentences(self._config, f"reading {name}"):
                [table] = self._lock([table])
                visible = visible_now(self._locked)
                if state is not None:
                    gone = Change(
                        "t", table.schema, None, None, time.time_ns() // 1000, None, {"lsn": visible.until}
                    )
                    yield Batch([gone], replace(offset, reading=name).position())
                offset = yield from self._read([table], offset, None if offset.reading == name else visible)
        return offset

    def _lock(self, tables: list[Table], snapshot: str | None = None) -> list[Table]:
        """Keep tables from being altered while they are read, and return them as they are then."""
        if self._reader is None:
            self._reader = connect(self._config)
        begin_reading(self._reader, snapshot)
        lock(self._reader, tables)
        names = [str(table.schema) for table in tables]
        return [table for table in self._look() if str(table.schema) in names]

    @property
    def _locked(self) -> Session:
        assert self._reader is not None
        return self._reader

    def _read(
        self, tables: list[Table], offset: Offset, visible: Visible | None
    ) -> Generator[Batch, None, Offset]:
        """Yield the rows of tables, and return the position behind them."""
        source = {"lsn": visible.until if visible is not None else offset.lsn}
        for table in tables:
            name = str(table.schema)
            waiting: list[Change] = []
            for changes in read_table(self._locked, table, source):
                if waiting:
                    yield Batch(waiting, replace(offset, reading=name).position())
                waiting = changes
            offset = offset.read(name, TableState(table.oid, visible))
            if table is tables[-1]:
                self._locked.execute("COMMIT")  # before others wait for whoever takes the last rows
            if waiting:
                yield Batch(waiting, offset.position())
        return offset

    def _follow(self, offset: Offset) -> Iterator[Batch]:
        assert self._replication is not None
        with sentences(self._config, "following its log"):
            if self._reader is not None:
                self._reader.close()
                self._reader = None
            [(now,)] = rows(self._asked, "SELECT pg_current_wal_lsn()::text")
            transactions = Transactions(offset, self._resolve)
            self._stream = Stream(
                self._config, self._replication, self._asked, transactions, self._check_tables
            )
            yield from self._stream.batches(lsn_number(now))

    def _check_tables(self) -> None:
        tables = self._tables.values()
        self._catalog.check_still(tables)
        check_told(self._config, self._asked, tables, self._catalog.server_version)

    def _resolve(self, relation: Relation) -> Table | None:
        """Return the table that the log speaks of, as it was then."""
        table = self._tables.get(relation.oid)
        if table is None or table.looks_like(relation):
            return table
        if (relation.schema, relation.name) != (table.schema.schema, table.schema.name):
            raise CaptureError(
                f"{table.schema} is called {relation.schema}.{relation.name} now: capture it under that name, or rename"
                " it back"
            )
        table = self._catalog.changed(relation, table)
        self._tables[relation.oid] = table
        return table
