"""Reads whole tables, with COPY: rows as they are in one snapshot."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import psycopg
from psycopg import pq

from headwater.capture.change import Change
from headwater.capture.postgres.catalog import Table
from headwater.capture.postgres.connection import Session, quoted, rows
from headwater.capture.postgres.offset import Visible, lsn_number
from headwater.capture.postgres.values import NULL, unescaped
from headwater.capture.source import TryAgain

__all__ = ["begin_reading", "check_not_rewritten", "lock", "read_table", "visible_now"]

BATCH_ROWS = 2000
BATCH_BYTES = 2 * 1024 * 1024


_REWRITTEN = """
SELECT FROM (SELECT %s::oid AS oid UNION SELECT relid FROM pg_partition_tree(%s) WHERE isleaf) t
  LEFT JOIN pg_class c ON c.oid = t.oid
 WHERE coalesce(nullif(c.relfilenode, 0), 0) <> coalesce(pg_relation_filenode(t.oid), 0)
"""


def begin_reading(session: Session, snapshot: str | None = None) -> None:
    """Start a transaction that sees the database as an exported snapshot shows it, or as it is at the first query."""
    session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    if snapshot is not None:
        session.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'".encode())


def lock(session: Session, tables: Iterable[Table]) -> None:
    """Keep tables from being altered until the transaction ends."""
    for table in tables:
        session.execute(f"LOCK TABLE {_name(table)} IN ACCESS SHARE MODE".encode())


def check_not_rewritten(session: Session, tables: Iterable[Table]) -> None:
    """Raise if a table was rewritten between the snapshot and the lock, for then the snapshot shows none of its rows.

    Locking first is no way out: whoever waits for the lock is waited for by the slot that is made with the snapshot.
    """
    for table in tables:
        if rows(session, _REWRITTEN, (table.oid, table.oid)):
            raise TryAgain(f"{table.schema} was truncated or altered when its snapshot was taken")


def visible_now(session: Session) -> Visible:
    """Return what the transaction sees."""
    [(text, lsn)] = rows(session, "SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text")
    return Visible(text, lsn_number(lsn))


def read_table(session: Session, table: Table, source: dict[str, Any]) -> Iterator[list[Change]]:
    """Yield the rows of a table in pieces; a row is a line of COPY, a value the text between two tabs."""
    columns = ", ".join(quoted(column.name) for column in table.schema.columns)
    copy = f"COPY (SELECT {columns} FROM {_name(table)}) TO STDOUT"
    make, schema, to_convert = partial(tuple.__new__, Change), table.schema, table.to_convert
    now_us = time.time_ns() // 1000
    changes: list[Change] = []
    size = 0
    for line in _lines(session, copy):
        values: list[bytes | None] = line[:-1].split(b"\t")  # type: ignore[assignment]
        if len(values) != len(schema.columns):
            raise TryAgain(f"{schema} was altered while it was read")
        if b"\\" in line:
            values = [NULL if value == b"\\N" else unescaped(value) for value in values]  # type: ignore[arg-type]
        for place, convert in to_convert:
            value = values[place]
            if value is not NULL:
                values[place] = convert(value)  # type: ignore[arg-type]
        # A named tuple's own constructor is twice as slow.
        changes.append(make(("r", schema, None, tuple(values), now_us, None, source)))
        size += len(line)
        if len(changes) >= BATCH_ROWS or size >= BATCH_BYTES:
            yield changes
            changes, size = [], 0
            now_us = time.time_ns() // 1000
    if changes:
        yield changes


def _lines(session: Session, copy: str) -> Iterator[bytes]:
    """Yield what COPY sends, straight from libpq, which has it line by line."""
    connection = session.pgconn
    result = connection.exec_(copy.encode())
    get = connection.get_copy_data
    if result.status == pq.ExecStatus.COPY_OUT:
        while True:
            size, line = get(0)
            if size <= 0:
                break
            yield bytes(line)
        if size == -2:
            raise psycopg.OperationalError(connection.get_error_message())
        ended = connection.get_result()
        while connection.get_result() is not None:
            pass
        assert ended is not None
        result = ended
    if result.status != pq.ExecStatus.COMMAND_OK:
        raise psycopg.errors.error_from_result(result)


def _name(table: Table) -> str:
    # Tables that inherit are others; partitions are not.
    only = "ONLY " if table.kind == "r" else ""
    return only + quoted(table.schema.schema, table.schema.name)
