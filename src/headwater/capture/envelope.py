"""Changes as records: Debezium's envelope, or the row alone.

The envelope is what Debezium writes with JSON and without schemas in its messages:

    {"before": …, "after": …, "source": {…}, "transaction": {"id": …}, "op": "c", "ts_ms": …}

and a record's key is the JSON object of the primary key. A delete is followed by a tombstone, a record of its
key without value, which lets compaction forget the row. An update that changes the key is a delete of the old
row and the creation of a new one. Flat, the value is `after` alone, and a delete the tombstone alone.

What the database did not say is left out of `before`. In `after` it is taken from `before`; where that does not
know it either, Debezium's marker `__debezium_unavailable_value` stands for it.

Rows come as the JSON text of their values (see `change`), so that a record is two `%` of bytes with templates that
are made once for each table. A truncated table is not an envelope's matter: see `publisher`.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from headwater.capture.change import Change, Row, TableSchema
from headwater.capture.source import CaptureError

__all__ = ["UNAVAILABLE", "Encoder", "Origin", "Pair", "json_bytes"]

UNAVAILABLE = "__debezium_unavailable_value"
"""What Debezium writes for a large value that did not change and is not known."""

Pair = tuple[bytes, bytes | None]
"""The key and the value of a record."""


@dataclass(frozen=True)
class Origin:
    """What the envelopes of one capture have in common."""

    connector: str
    name: str
    """The prefix of the topics: Debezium's logical name of the server."""
    database: str
    version: str


def json_bytes(value: Any) -> bytes:
    """Return the JSON text of a value, as short as it can be."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


class _Layout:
    """The templates of one table as it was at some time."""

    def __init__(self, table: TableSchema, origin: Origin, *, flat: bool) -> None:
        names = [column.name for column in table.columns]
        missing = [name for name in table.key if name not in names]
        if not table.key or missing:
            raise CaptureError(
                f"{table} has no primary key, and rows are told apart by it: give it one, or a unique index"
                " that may take its place"
            )
        self.table = table
        self.flat = flat
        self.row = _object(names)
        self.key = _object(table.key)
        self.fields = [b'"%b":' % _text(name) for name in names]
        self.key_of: Callable[[Row], Any] = itemgetter(*(names.index(name) for name in table.key))
        self.unavailable = [_unavailable(column.type) for column in table.columns]
        self.value = _value_template(table, origin)

    def known(self, row: Row) -> bytes:
        """Return a row of which only some columns are known."""
        parts = [name + value for name, value in zip(self.fields, row, strict=True) if value is not None]
        return b"{%b}" % b",".join(parts)

    def filled(self, after: Row, before: Row | None) -> Row:
        """Return a row without gaps."""
        other = before or (None,) * len(after)
        three = zip(after, other, self.unavailable, strict=True)
        return tuple(new if new is not None else old if old is not None else none for new, old, none in three)


class Encoder:
    """Makes records of changes; `now_ms` is given with each, for it is the same for many."""

    def __init__(self, origin: Origin, *, flat: Container[str] = ()) -> None:
        """Make an encoder that writes the rows of the tables in `flat` as they are."""
        self._origin = origin
        self._flat = flat
        self._layouts: dict[int, _Layout] = {}
        self._layout: _Layout | None = None
        self._source: Mapping[str, Any] | None = None
        self._source_text = b""
        self._names: dict[str, bytes] = {}

    def key(self, table: TableSchema, row: Row) -> bytes:
        """Return the key of a row's records."""
        layout = self._layout_of(table)
        return self._key(layout, row)

    def records(self, change: Change, now_ms: int) -> list[Pair]:
        """Return the records that stand for a change of a row."""
        op, table, before, after, _, _, _ = change
        layout = self._layout
        if layout is None or layout.table is not table:
            layout = self._layout_of(table)
        if after is None:
            if before is None:
                raise CaptureError(f"a change of {table} says nothing about its row")
            return self._deleted(layout, change, self._key(layout, before), before, now_ms)
        if None in after:
            after = layout.filled(after, before)
        key = layout.key % layout.key_of(after)
        if op == "u" and before is not None:
            old = self._key_or_none(layout, before)
            if old is not None and old != key:
                created = change._replace(op="c", before=None)
                return [
                    *self._deleted(layout, change, old, before, now_ms),
                    (key, self._value(layout, created, b"null", layout.row % after, now_ms)),
                ]
        if layout.flat:
            return [(key, layout.row % after)]
        return [(key, self._value(layout, change, self._before(layout, before), layout.row % after, now_ms))]

    def deleted(self, change: Change, key: bytes, now_ms: int) -> list[Pair]:
        """Return the records that delete the row of a key of which nothing else is known."""
        layout = self._layout_of(change.table)
        tombstone: Pair = (key, None)
        if layout.flat:
            return [tombstone]
        return [(key, self._value(layout, change._replace(op="d"), key, b"null", now_ms)), tombstone]

    def _deleted(self, layout: _Layout, change: Change, key: bytes, before: Row, now_ms: int) -> list[Pair]:
        tombstone: Pair = (key, None)
        if layout.flat:
            return [tombstone]
        text = self._before(layout, before)
        return [(key, self._value(layout, change._replace(op="d"), text, b"null", now_ms)), tombstone]

    def _value(self, layout: _Layout, change: Change, before: bytes, after: bytes, now_ms: int) -> bytes:
        if layout.flat:
            return after
        op, _, _, _, time_us, transaction, source = change
        if source is not self._source:
            self._source_text = self._more(source)
            self._source = source
        return layout.value % (
            before,
            after,
            time_us // 1000,
            time_us,
            b"true" if op == "r" else b"false",
            self._source_text,
            b"null" if transaction is None else b'{"id":%b}' % json_bytes(transaction),
            op.encode(),
            now_ms,
        )

    def _before(self, layout: _Layout, before: Row | None) -> bytes:
        if before is None:
            return b"null"
        return layout.known(before) if None in before else layout.row % before

    def _key(self, layout: _Layout, row: Row) -> bytes:
        key = self._key_or_none(layout, row)
        if key is None:
            raise CaptureError(
                f"a change of {layout.table} does not say which row it is: {layout.known(row).decode()}"
            )
        return key

    def _key_or_none(self, layout: _Layout, row: Row) -> bytes | None:
        values = layout.key_of(row)
        if values is None or (type(values) is tuple and None in values):
            return None
        key: bytes = layout.key % values
        return key

    def _more(self, source: Mapping[str, Any]) -> bytes:
        """Return what a source says besides, behind a comma."""
        names = self._names
        out = b""
        for name, value in source.items():
            text = names.get(name)
            if text is None:
                text = names[name] = b',"%b":' % _raw(name)
            out += text + (b"%d" % value if type(value) is int else json_bytes(value))
        return out

    def _is_flat(self, table: TableSchema) -> bool:
        return str(table) in self._flat or table.name in self._flat

    def _layout_of(self, table: TableSchema) -> _Layout:
        found = self._layouts.get(id(table))
        if found is None:
            if len(self._layouts) > 1000:  # tables as they were long ago
                self._layouts.clear()
            found = self._layouts[id(table)] = _Layout(table, self._origin, flat=self._is_flat(table))
        self._layout = found  # it keeps its table alive, so that no other can get its id
        return found


def _raw(name: str) -> bytes:
    """Return a name as it stands between quotes."""
    return json_bytes(name)[1:-1]


def _text(name: str) -> bytes:
    """Return a name as it stands between quotes in a template."""
    return _raw(name).replace(b"%", b"%%")


def _object(names: list[str] | tuple[str, ...]) -> bytes:
    return b"{%b}" % b",".join(b'"%b":%%b' % _text(name) for name in names)


def _value_template(table: TableSchema, origin: Origin) -> bytes:
    constant = {"version": origin.version, "connector": origin.connector, "name": origin.name}
    # MySQL's schemas are its databases, and Debezium names them once.
    place = (
        {"db": table.schema}
        if origin.connector == "mysql"
        else {"db": origin.database, "schema": table.schema}
    )
    head = json_bytes(constant)[:-1].replace(b"%", b"%%")
    tail = json_bytes({**place, "table": table.name})[1:-1].replace(b"%", b"%%")
    return (
        b'{"before":%b,"after":%b,"source":'
        + head
        + b',"ts_ms":%d,"ts_us":%d,"snapshot":"%b",'
        + tail
        + b'%b},"transaction":%b,"op":"%b","ts_ms":%d}'
    )


def _unavailable(type_: str) -> bytes:
    match type_:
        case "binary":
            return json_bytes(b64encode(UNAVAILABLE.encode()).decode())
        case "map<string,string>":
            return json_bytes({UNAVAILABLE: UNAVAILABLE})
        case "array<string>":
            return json_bytes([UNAVAILABLE])
        case _:
            return json_bytes(UNAVAILABLE)
