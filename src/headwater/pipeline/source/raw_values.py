"""Values as they came: the columns `key` and `value`, both binary."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headwater.pipeline.source import kernel
from headwater.pipeline.source.decoded import Decoded
from headwater.pipeline.source.opened import Records

__all__ = ["RawDecoder", "binary_column"]


class RawDecoder:
    """Gives every record as it is, nulls too."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def decode(self, records: Records) -> Decoded:
        """Return one row per record."""
        columns = {
            "key": (kernel.KEY_AT, kernel.KEY_LENGTH),
            "value": (kernel.VALUE_AT, kernel.VALUE_LENGTH),
        }
        found = [binary_column(records, *columns[field.name], field.type) for field in self._schema]
        return Decoded(found, None, [])


def binary_column(records: Records, at: int, length: int, kind: pa.DataType) -> pa.Array:
    """Return a column of bytes, or of text, given the columns of their places and lengths."""
    lengths = records.column(length)
    offsets, data = kernel.gather(records.buffer, records.column(at), lengths)
    present = lengths >= 0
    validity = None
    if not present.all():
        validity = pa.py_buffer(np.packbits(present, bitorder="little"))
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(records), buffers)
