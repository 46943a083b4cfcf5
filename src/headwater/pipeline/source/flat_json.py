"""Which schemas the JSON kernel reads, and Arrow columns from its cells."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headwater.pipeline.source import json_kernel as compiled
from headwater.pipeline.source import kernel
from headwater.pipeline.source.opened import Records

__all__ = ["FlatParser", "is_flat"]

_MAX_FIELDS = 64  # one bit each says which fields a row has had
_INTEGERS = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}


def is_flat(schema: pa.Schema) -> bool:
    """Tell whether the kernel reads every column of a schema."""
    return 0 < len(schema) <= _MAX_FIELDS and all(_kind(field.type) is not None for field in schema)


def _kind(kind: pa.DataType) -> int | None:
    if pa.types.is_string(kind):
        return compiled.STRING
    if pa.types.is_signed_integer(kind):
        return compiled.INTEGER
    if pa.types.is_float64(kind):
        return compiled.DOUBLE
    if pa.types.is_boolean(kind):
        return compiled.BOOLEAN
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return compiled.TIMESTAMP
    return compiled.DATE if pa.types.is_date32(kind) else None


class FlatParser:
    """The kernel for one schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self._types = [field.type for field in schema]
        names = [field.name.encode() for field in schema]
        self._names = np.frombuffer(bytearray(b"".join(names)), np.uint8)
        self._ends = np.cumsum([len(name) for name in names], dtype=np.int64)
        self._kinds = np.array([_kind(each) for each in self._types], np.int64)
        bits = [each.bit_width if pa.types.is_signed_integer(each) else 64 for each in self._types]
        self._lows = np.array([-(1 << (width - 1)) for width in bits], np.int64)
        self._highs = np.array([(1 << (width - 1)) - 1 for width in bits], np.int64)

    def parse(self, records: Records) -> tuple[list[pa.Array], NDArray[np.bool_]]:
        """Return the columns, and which rows of them count: the others are to be read in another way."""
        shape = (len(self._types), len(records))
        cells = np.empty(shape, np.int64)
        sizes = np.empty(shape, np.int64)
        taken = compiled.parse_objects(
            records.buffer,
            records.column(kernel.VALUE_AT),
            records.column(kernel.VALUE_LENGTH),
            self._names,
            self._ends,
            self._kinds,
            self._lows,
            self._highs,
            cells,
            cells.view(np.float64),
            sizes,
        )
        if not taken.all():
            sizes[:, ~taken] = -1
        columns = [self._column(records, kind, cells[i], sizes[i]) for i, kind in enumerate(self._types)]
        return columns, taken

    @staticmethod
    def _column(records: Records, kind: pa.DataType, cells: kernel.Longs, sizes: kernel.Longs) -> pa.Array:
        present = sizes >= 0
        validity = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
        if pa.types.is_string(kind):
            offsets, data = kernel.gather(records.buffer, cells, sizes)
            buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
        elif pa.types.is_boolean(kind):
            buffers = [validity, pa.py_buffer(np.packbits(cells != 0, bitorder="little"))]
        elif kind.bit_width < 64:
            buffers = [validity, pa.py_buffer(cells.astype(_INTEGERS[kind.bit_width]))]
        else:
            buffers = [validity, pa.py_buffer(cells)]
        return pa.Array.from_buffers(kind, len(cells), buffers)
