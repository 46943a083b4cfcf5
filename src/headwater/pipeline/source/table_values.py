"""Records of a table's topic into changes: the row's columns, and what became of it.

| | flat | Debezium's envelope, also within `schema` and `payload` |
|---|---|---|
| a row | the value | `after`, of the operations `c`, `u` and `r` |
| a delete | a null value; its key is all that is left | `d`; its key, or `before` |
| `_changed_at` | the record's time | `source.ts_us` or `ts_ms`, else the envelope's `ts_ms` |
| of `r`, a snapshot's row | | null: it was there before it was read, nobody knows since when |
| of a null value | as of any | null: it follows a `d`, or is what compaction has left of it |

`_version` is the offset. A column of the table may hold the time of its changes instead; a delete has the record's or
the envelope's all the same.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headwater.pipeline.source import kernel
from headwater.pipeline.source.change_keys import KeyReader
from headwater.pipeline.source.decoded import Decoded, Malformed, empty
from headwater.pipeline.source.json_values import JsonDecoder
from headwater.pipeline.source.members import Names, find_members, read_longs
from headwater.pipeline.source.opened import Records
from headwater.pipeline.source.spec import CHANGE_COLUMNS

__all__ = ["TableDecoder"]

Rows = NDArray[np.intp]
Piece = tuple[Rows, list[pa.Array]]

_ENVELOPE = Names("before", "after", "source", "op", "ts_ms", "payload")
_BEFORE, _AFTER, _SOURCE, _OP, _TS_MS, _PAYLOAD = range(6)
_TIMES = Names("ts_us", "ts_ms")
_OPEN, _NULL = 0x7B, 0x6E
_UPSERTS = np.frombuffer(b"cur", np.uint8)
_SNAPSHOT, _DELETE, _TRUNCATE, _MESSAGE = b"rdtm"
_OP_SIZE = 3  # a letter in quotes


class TableDecoder:
    """Reads the changes of one table."""

    def __init__(self, schema: pa.Schema, envelope: str, key: Sequence[str], valid_from: str | None) -> None:
        self._schema = schema
        self._row = pa.schema([field for field in schema if field.name not in CHANGE_COLUMNS])
        self._rows = JsonDecoder(self._row)
        self._key = [self._row.get_field_index(name) for name in key]
        self._keys = KeyReader(self._row, key)
        self._debezium = envelope == "debezium"
        self._valid_from = None if valid_from is None else self._row.get_field_index(valid_from)
        self._time = schema.field("_changed_at").type

    def decode(self, records: Records) -> Decoded:
        """Return one row per change."""
        return self._enveloped(records) if self._debezium else self._flat(records)

    def _flat(self, records: Records) -> Decoded:
        times = records.column(kernel.TIME) * 1000
        known = np.ones(len(records), np.bool_)
        upserts = self._rows.decode(records)
        gone = np.flatnonzero(records.column(kernel.VALUE_LENGTH) < 0)
        if upserts.rows is None:
            rows: Rows = np.arange(len(records))
            return Decoded(self._changed(records, rows, upserts.columns, times, known), None, [])
        dead = list(upserts.dead)
        pieces = [(upserts.rows, self._changed(records, upserts.rows, upserts.columns, times, known))]
        pieces.append(self._deleted(records, gone, [records.key(row) for row in gone.tolist()], times, dead))
        return self._merged(pieces, dead)

    def _enveloped(self, records: Records) -> Decoded:
        buffer = records.buffer
        places, sizes, objects = _unwrapped(records)
        null = (records.column(kernel.VALUE_LENGTH) < 0) | (
            objects & _starts(buffer, places, sizes, _PAYLOAD, _NULL)
        )
        op = np.where(
            objects & (sizes[_OP] == _OP_SIZE), buffer[np.minimum(places[_OP] + 1, len(buffer) - 1)], 0
        )
        after = _starts(buffer, places, sizes, _AFTER, _OPEN)
        upserted = np.isin(op, _UPSERTS) & after
        deleted = op == _DELETE
        wrong = np.flatnonzero(~(null | upserted | deleted | (op == _MESSAGE)))
        dead = [(int(row), _reason(records, int(row), int(op[row]))) for row in wrong]
        times = _times(records, places, sizes)

        rows = np.flatnonzero(upserted)
        some = records.table[rows]
        some[:, kernel.VALUE_AT], some[:, kernel.VALUE_LENGTH] = places[_AFTER, rows], sizes[_AFTER, rows]
        upserts = self._rows.decode(Records(buffer, some))
        dead += [(int(rows[row]), f"after: {reason}") for row, reason in upserts.dead]
        good = rows if upserts.rows is None else rows[upserts.rows]
        pieces = [(good, self._changed(records, good, upserts.columns, times, op != _SNAPSHOT))]

        for gone, timed in ((np.flatnonzero(deleted), times), (np.flatnonzero(null), None)):
            keys = [_key_of(records, row, places, sizes) for row in gone.tolist()]
            pieces.append(self._deleted(records, gone, keys, timed, dead))
        return self._merged(pieces, dead)

    def _changed(
        self,
        records: Records,
        rows: Rows,
        columns: list[pa.Array],
        times: kernel.Longs,
        known: NDArray[np.bool_],
    ) -> list[pa.Array]:
        """Return rows as changes; the time of some is not known."""
        at = pa.array(times[rows], mask=~known[rows]).cast(self._time)
        if self._valid_from is not None:
            at = pc.coalesce(columns[self._valid_from].cast(self._time), at)
        return self._with(columns, rows, records, at, deleted=False)

    def _deleted(
        self,
        records: Records,
        rows: Rows,
        keys: list[bytes | None],
        times: kernel.Longs | None,
        dead: list[tuple[int, str]],
    ) -> Piece:
        """Return deletes as changes: the key's columns, and nothing else."""
        read: list[list[Any]] = []
        good: list[int] = []
        for row, key in zip(rows.tolist(), keys, strict=True):
            try:
                read.append(self._keys.read(key))
                good.append(row)
            except Malformed as error:
                dead.append((row, str(error)))
        kept = np.array(good, np.intp)
        columns = [pa.nulls(len(kept), field.type) for field in self._row]
        for place, values in zip(self._key, zip(*read, strict=True), strict=False):
            columns[place] = pa.array(values, self._row.field(place).type)
        at = pa.nulls(len(kept), self._time) if times is None else pa.array(times[kept]).cast(self._time)
        return kept, self._with(columns, kept, records, at, deleted=True)

    def _with(
        self,
        columns: list[pa.Array],
        rows: Rows,
        records: Records,
        at: pa.Array,
        *,
        deleted: bool,
    ) -> list[pa.Array]:
        count = len(rows)
        named = dict(zip(self._row.names, columns, strict=True))
        named["_deleted"] = pa.array(np.full(count, deleted))
        named["_changed_at"] = at
        named["_version"] = pa.array(records.column(kernel.OFFSET)[rows])
        return [named[field.name] for field in self._schema]

    def _merged(self, pieces: list[Piece], dead: list[tuple[int, str]]) -> Decoded:
        """Put rows and deletes back into the order of the offsets."""
        some = [piece for piece in pieces if len(piece[0])]
        if not some:
            return Decoded(empty(self._schema), np.zeros(0, np.intp), sorted(dead))
        rows = np.concatenate([rows for rows, _ in some])
        columns = [pa.concat_arrays([columns[i] for _, columns in some]) for i in range(len(self._schema))]
        if len(some) > 1:
            order = np.argsort(rows, kind="stable")
            rows, columns = rows[order], [column.take(pa.array(order)) for column in columns]
        return Decoded(columns, rows, sorted(dead))


def _unwrapped(records: Records) -> tuple[kernel.Longs, kernel.Longs, NDArray[np.bool_]]:
    """Return the places and sizes of the envelope's members, looked for in `payload` where there is one."""
    at, length = records.column(kernel.VALUE_AT), records.column(kernel.VALUE_LENGTH)
    places, sizes, objects = find_members(records.buffer, at, length, _ENVELOPE.bytes, _ENVELOPE.ends)
    inner = np.flatnonzero(objects & _starts(records.buffer, places, sizes, _PAYLOAD, _OPEN))
    if len(inner):
        found = find_members(
            records.buffer, places[_PAYLOAD, inner], sizes[_PAYLOAD, inner], _ENVELOPE.bytes, _ENVELOPE.ends
        )
        places[:, inner], sizes[:, inner], objects[inner] = found
    return places, sizes, objects


def _starts(
    buffer: kernel.Bytes, places: kernel.Longs, sizes: kernel.Longs, member: int, byte: int
) -> NDArray[np.bool_]:
    """Tell which rows have a member that begins with a byte."""
    there = sizes[member] > 0
    begins: NDArray[np.bool_] = there & (buffer[np.where(there, places[member], 0)] == byte)
    return begins


def _times(records: Records, places: kernel.Longs, sizes: kernel.Longs) -> kernel.Longs:
    """Return the time of each change in µs: the database's, else the envelope's, else the record's."""
    buffer = records.buffer
    source_at, source_size = places[_SOURCE], np.maximum(sizes[_SOURCE], 0)
    at, size, _ = find_members(buffer, source_at, source_size, _TIMES.bytes, _TIMES.ends)
    micros, has_micros = read_longs(buffer, at[0], size[0])
    millis, has_millis = read_longs(buffer, at[1], size[1])
    outer, has_outer = read_longs(buffer, places[_TS_MS], sizes[_TS_MS])
    record = records.column(kernel.TIME) * 1000
    otherwise = np.where(has_millis, millis * 1000, np.where(has_outer, outer * 1000, record))
    times: kernel.Longs = np.where(has_micros, micros, otherwise)
    return times


def _key_of(records: Records, row: int, places: kernel.Longs, sizes: kernel.Longs) -> bytes | None:
    """Return the key of a delete: the record's, or the row before where it has none."""
    key = records.key(row)
    if key is None and sizes[_BEFORE, row] > 0:
        start = int(places[_BEFORE, row])
        before = records.buffer[start : start + int(sizes[_BEFORE, row])].tobytes()
        return before if before.startswith(b"{") else None
    return key


def _reason(records: Records, row: int, op: int) -> str:
    """Say why a record is no change."""
    if op == _TRUNCATE:
        return "the table was truncated: its rows are not named; delete them with DELETE, or start over"
    if op in _UPSERTS:
        return f"the operation {chr(op)} without the row after it"
    try:
        document = json.loads(records.value(row) or b"")
    except (ValueError, RecursionError) as error:
        return f"not JSON: {error}"
    if isinstance(document, dict) and isinstance(document.get("payload"), dict):
        document = document["payload"]
    if not isinstance(document, dict) or "op" not in document:
        return "not in Debezium's envelope: there is no op"
    return f"the operation {json.dumps(document['op'])} is unknown; there are c, u, r, d and t"
