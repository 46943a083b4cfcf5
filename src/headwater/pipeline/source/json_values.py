"""JSON values into columns: the quickest way that takes them.

1. `flat_json`, our own kernel, for flat schemas; it leaves out the rows that are not of the common form.
2. `pyarrow.json` for those, and for nested schemas. The values are joined as lines and parsed in one call. Each
   line begins with `{` and ends with `}`, a raw line break inside a string is no JSON, and inside an object or
   an array another object cannot follow without a comma: so no value can swallow a part of the next, and as
   many rows as lines means one row per line. Where the call fails the values are halved until few are left.
3. `json_rows`, one by one, for those few: it knows the rules, and the reason why a record is malformed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json
from numpy.typing import NDArray

from headwater.pipeline.source import kernel
from headwater.pipeline.source.decoded import Decoded, Malformed, empty
from headwater.pipeline.source.flat_json import FlatParser, is_flat
from headwater.pipeline.source.json_rows import row_reader
from headwater.pipeline.source.opened import Records

__all__ = ["JsonDecoder"]

Piece = tuple[NDArray[np.intp], list[pa.Array]]
"""Records, by their rows, and the columns that were made of them."""

_FEW = 32
"""So many values are parsed one by one sooner than halved again."""


class JsonDecoder:
    """Reads values that are one JSON object each; null values, which are deletes, give no row."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._flat = FlatParser(schema) if is_flat(schema) else None
        self._read_row = row_reader(schema)
        self._parse_options = pyarrow.json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="ignore"
        )
        self._all_at_once = all(_is_pyarrows(field.type) for field in schema)

    def decode(self, records: Records) -> Decoded:
        """Return one row per record that is not null and not malformed."""
        present = records.column(kernel.VALUE_LENGTH) >= 0
        pieces: list[Piece] = []
        dead: list[tuple[int, str]] = []
        left = present
        if self._flat is not None:
            columns, taken = self._flat.parse(records)
            if taken.all():
                return Decoded(columns, None, [])
            rows = np.flatnonzero(taken)
            if len(rows):
                pieces.append((rows, [column.take(pa.array(rows)) for column in columns]))
            left = present & ~taken
        self._decode(records, np.flatnonzero(left), pieces, dead)
        return self._merged(pieces, dead)

    def _merged(self, pieces: list[Piece], dead: list[tuple[int, str]]) -> Decoded:
        """Put what was read in several ways back into the order of the offsets."""
        if not pieces:
            return Decoded(empty(self._schema), np.zeros(0, np.intp), dead)
        rows = np.concatenate([rows for rows, _ in pieces])
        columns = [pa.concat_arrays([columns[i] for _, columns in pieces]) for i in range(len(self._schema))]
        order = np.argsort(rows, kind="stable")
        if not (order[:-1] < order[1:]).all():
            columns = [column.take(pa.array(order)) for column in columns]
        return Decoded(columns, rows[order], dead)

    def _decode(
        self,
        records: Records,
        rows: NDArray[np.intp],
        pieces: list[Piece],
        dead: list[tuple[int, str]],
    ) -> None:
        if not len(rows):
            return
        columns = self._at_once(records.taken(rows)) if self._all_at_once else None
        if columns is not None:
            pieces.append((rows, columns))
        elif self._all_at_once and len(rows) > _FEW:
            middle = len(rows) // 2
            self._decode(records, rows[:middle], pieces, dead)
            self._decode(records, rows[middle:], pieces, dead)
        else:
            self._one_by_one(records, rows, pieces, dead)

    def _at_once(self, records: Records) -> list[pa.Array] | None:
        lines, objects, ascii_only = kernel.join_objects(
            records.buffer, records.column(kernel.VALUE_AT), records.column(kernel.VALUE_LENGTH)
        )
        if not objects.all() or not (ascii_only or _is_utf8(lines)):
            return None
        options = pyarrow.json.ReadOptions(use_threads=False, block_size=len(lines) + 1)
        try:
            table = pyarrow.json.read_json(pa.BufferReader(pa.py_buffer(lines)), options, self._parse_options)
        except pa.ArrowInvalid:
            return None
        if table.num_rows != len(records):
            return None
        return [_one_chunk(table.column(field.name), field.type) for field in self._schema]

    def _one_by_one(
        self,
        records: Records,
        rows: NDArray[np.intp],
        pieces: list[Piece],
        dead: list[tuple[int, str]],
    ) -> None:
        read: list[list[Any]] = []
        good: list[int] = []
        for row in rows.tolist():
            try:
                read.append(self._read_row(records.value(row) or b""))
                good.append(row)
            except Malformed as error:
                dead.append((row, str(error)))
        if read:
            columns = zip(*read, strict=True)
            arrays = [
                pa.array(column, field.type) for column, field in zip(columns, self._schema, strict=True)
            ]
            pieces.append((np.array(good, np.intp), arrays))


def _is_pyarrows(kind: pa.DataType) -> bool:
    """Tell whether `pyarrow.json` reads a type as we do: it takes dates as numbers and no maps."""
    if pa.types.is_list(kind):
        return _is_pyarrows(kind.value_type)
    if pa.types.is_struct(kind):
        return all(_is_pyarrows(field.type) for field in kind)
    return not (pa.types.is_date32(kind) or pa.types.is_map(kind) or pa.types.is_binary(kind))


def _is_utf8(lines: kernel.Bytes) -> bool:
    try:
        str(memoryview(lines.data), "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _one_chunk(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return array if array.type == kind else array.cast(kind)
