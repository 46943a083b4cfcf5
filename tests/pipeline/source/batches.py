"""Fetched bytes made by hand."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.pipeline.source.opened import OpenedFetch, Records
from headwater.record.records import Record, encode_batch


def records_of(values: Sequence[bytes | None], keys: Sequence[bytes | None] | None = None) -> Records:
    """Return records with these values, as a fetch brings them."""
    keys = keys or [None] * len(values)
    rows = [Record(i, 1000 + i, key, value) for i, (key, value) in enumerate(zip(keys, values, strict=True))]
    [found] = OpenedFetch(memoryview(encode_batch(rows)), []).records(0, len(rows))
    return found
