"""Compiled code loaded before it is needed: the first time ever it is compiled, for about half a minute."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headwater.pipeline.source import kernel
from headwater.pipeline.source.json_values import JsonDecoder
from headwater.pipeline.source.members import Names, find_members, read_longs
from headwater.pipeline.source.opened import OpenedFetch
from headwater.pipeline.source.raw_values import binary_column
from headwater.record.records import Record, encode_batch

__all__ = ["warm"]


def warm() -> None:
    """Send one record through everything."""
    batch = encode_batch([Record(0, 0, b"k", b'{"a": 1, "b": {}}')])
    for records in OpenedFetch(memoryview(batch), []).records(0, 1):
        JsonDecoder(pa.schema([("a", pa.int64())])).decode(records)
        binary_column(records, kernel.KEY_AT, kernel.KEY_LENGTH, pa.binary())
        records.taken(np.zeros(0, np.intp))
        names = Names("a")
        places, sizes, _ = find_members(
            records.buffer,
            records.column(kernel.VALUE_AT),
            records.column(kernel.VALUE_LENGTH),
            names.bytes,
            names.ends,
        )
        read_longs(records.buffer, places[0], sizes[0])
