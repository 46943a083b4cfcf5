"""The log's messages as changes of rows, and how far they go; no I/O.

What was published already is left out: transactions before the position, the first changes of the one that it is in the
middle of, and what a later snapshot of a table has shown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from headwater.capture.change import Batch, Change, Op, Row
from headwater.capture.postgres.catalog import Table
from headwater.capture.postgres.offset import Offset
from headwater.capture.postgres.pgoutput import (
    HEADER,
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    MalformedMessage,
    Other,
    Relation,
    Truncate,
    Update,
    Values,
    decode,
)
from headwater.capture.postgres.values import NULL

__all__ = ["Gap", "Transactions"]


class Gap(NamedTuple):
    """A change whose row is not known whole, for the log does not repeat large values that did not change."""

    place: int
    """Which one of the batch's changes."""
    table: Table
    values: Values


class Transactions:
    """Takes messages, and gives batches; `resolve` says which table a Relation is, None for one not captured."""

    def __init__(self, offset: Offset, resolve: Callable[[Relation], Table | None]) -> None:
        self.changes: list[Change] = []
        self.gaps: list[Gap] = []
        self.size = 0
        """Bytes of what waits, as they came."""
        self._offset = offset
        self._resolve = resolve
        self._tables: dict[int, Table | None] = {}
        self._begun: Begin | None = None
        self._count = 0
        self._is_old = False
        self._hidden: frozenset[str] = frozenset()
        self._source: dict[str, Any] = {}
        self._name = ""
        self._time_us = 0
        self._handlers: dict[type, Callable[[Any], None]] = {
            Insert: self._insert,
            Update: self._update,
            Delete: self._delete,
            Truncate: self._truncate,
            Begin: self._begin,
            Commit: self._commit,
            Relation: self._relation,
            Other: lambda other: None,
        }

    @property
    def is_between(self) -> bool:
        """Whether no transaction is being told."""
        return self._begun is None

    @property
    def offset(self) -> Offset:
        """Where to go on once the changes that wait are published."""
        return self._offset

    def advance(self, lsn: int) -> None:
        """Note that the log has nothing more for us up to a place."""
        if self._begun is None and lsn > self._offset.lsn:
            # A transaction that was told in part is still ahead.
            self._offset = self._offset.reached(lsn, self._offset.done)

    def batch(self, *, is_behind: bool = False) -> Batch:
        """Return the changes that wait; the next ones wait for the next batch."""
        changes, self.changes, self.gaps, self.size = self.changes, [], [], 0
        offset = self._offset
        if self._begun is not None and not self._is_old:
            offset = offset.reached(offset.lsn, max(self._count, offset.done))
        return Batch(changes, offset.position(), is_behind)

    def take(self, data: bytes) -> None:
        """Take in a piece of the log, as the replication stream has it."""
        message = decode(data, HEADER)
        self._handlers[type(message)](message)
        if self.changes:
            self.size += len(data)

    def _relation(self, relation: Relation) -> None:
        self._tables[relation.oid] = self._resolve(relation)

    def _begin(self, begin: Begin) -> None:
        if self._begun is not None:
            raise MalformedMessage("pgoutput began a transaction before the one before it was at its end")
        self._begun = begin
        self._count = 0
        self._time_us = begin.time_us
        # The server does not repeat what is before the place that we named; if it did, it would be left out here.
        self._is_old = begin.commit_lsn < self._offset.lsn
        self._source = {"txId": begin.xid, "lsn": begin.commit_lsn}
        self._name = f"{begin.xid}:{begin.commit_lsn}"
        self._hidden = frozenset(
            name
            for name, state in self._offset.tables.items()
            if state.visible is not None and state.visible.shows(begin.xid)
        )

    def _commit(self, commit: Commit) -> None:
        if self._begun is None:
            raise MalformedMessage("pgoutput ended a transaction that had not begun")
        self._begun = None
        if commit.end_lsn > self._offset.lsn:
            self._offset = self._offset.reached(commit.end_lsn)

    def _table(self, oid: int) -> Table | None:
        """Return the table of the next change, or None where the change is to be left out."""
        if self._begun is None:
            raise MalformedMessage("pgoutput told of a change outside of a transaction")
        try:
            table = self._tables[oid]
        except KeyError:
            raise MalformedMessage(
                f"pgoutput told of a change of table {oid} before it told of the table"
            ) from None
        if self._is_old or self._count <= self._offset.done:
            return None
        return None if self._hidden and table is not None and str(table.schema) in self._hidden else table

    def _insert(self, insert: Insert) -> None:
        self._count += 1
        table = self._table(insert.relation)
        if table is not None:
            after = _row(table, insert.new) if None not in insert.new else _row_with_gaps(table, insert.new)
            self._add("c", table, None, after)

    def _update(self, update: Update) -> None:
        self._count += 1
        table = self._table(update.relation)
        if table is None:
            return
        before = None if update.old is None else _before(table, update.old, is_key=update.is_key)
        new = update.new
        if None not in new and UNCHANGED not in new:
            self._add("u", table, before, _row(table, new))
            return
        after = _row_with_gaps(table, new)
        if before is not None:
            after = tuple([old if value is None else value for value, old in zip(after, before, strict=True)])
        if None in after:
            self.gaps.append(Gap(len(self.changes), table, new))
        self._add("u", table, before, after)

    def _delete(self, delete: Delete) -> None:
        self._count += 1
        table = self._table(delete.relation)
        if table is not None:
            self._add("d", table, _before(table, delete.old, is_key=delete.is_key), None)

    def _add(self, op: Op, table: Table, before: Row | None, after: Row | None) -> None:
        # A named tuple's own constructor is twice as slow.
        change = (op, table.schema, before, after, self._time_us, self._name, self._source)
        self.changes.append(tuple.__new__(Change, change))

    def _truncate(self, truncate: Truncate) -> None:
        self._count += 1
        for oid in truncate.relations:
            table = self._table(oid)
            if table is not None:
                self._add("t", table, None, None)


def _row(table: Table, values: Values) -> Row:
    """Return the JSON of a row without NULLs and gaps. It changes the list that it is given."""
    _check_width(table, values)
    for place, convert in table.to_convert:
        values[place] = convert(values[place])  # type: ignore[arg-type]
    return tuple(values)


def _row_with_gaps(table: Table, values: Values) -> Row:
    """Return the JSON of any row; None where the log does not say."""
    _check_width(table, values)
    return tuple(
        [
            NULL if value is None else None if value is UNCHANGED else convert(value)
            for convert, value in zip(table.converts, values, strict=True)
        ]
    )


def _before(table: Table, values: Values, *, is_key: bool) -> Row:
    """Return what a row was; of a key, None for the rest of the row, which the log leaves empty."""
    row = _row_with_gaps(table, values)
    if not is_key:
        return row
    return tuple([value if is_part else None for value, is_part in zip(row, table.is_key, strict=True)])


def _check_width(table: Table, values: Values) -> None:
    if len(values) != len(table.converts):
        raise MalformedMessage(
            f"pgoutput told of a row of {table.schema} with {len(values)} values for {len(table.converts)} columns"
        )
