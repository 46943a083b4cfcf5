"""What a bucket of keys remembers for `sliding`: events that wait for the watermark, and those before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Bucket"]

_ARROW = {"bigint": pa.int64(), "double": pa.float64()}
_EXACT = 2.0**62
"""Sums below this, give or take a rounding, are right in 64 bits."""


class Wanted(Protocol):
    """What is asked of the values of a window; `column` None asks for the number of its events."""

    @property
    def function(self) -> str:
        """The name of the aggregate."""

    @property
    def column(self) -> str | None:
        """Whose values."""

    @property
    def result(self) -> str:
        """The type of the result."""


class Bucket:
    """The events of some keys: key, time in µs, values and whether they are there, and the event as JSON.

    An event whose JSON is null has had its result and is only there for later windows.
    """

    def __init__(self, events: pa.Table, places: dict[str, int]) -> None:
        self._events = events
        self._places = places

    @classmethod
    def load(cls, state: bytes | None, types: Sequence[tuple[str, str]]) -> Bucket:
        """Return what `dump` gave, or an empty bucket; `types` are those of the columns with values."""
        fields = [("key", pa.string()), ("at", pa.int64()), ("event", pa.string())]
        for number, (_, kind) in enumerate(types):
            fields += [(f"v{number}", _ARROW[kind]), (f"p{number}", pa.bool_())]
        schema = pa.schema(fields)
        events = schema.empty_table() if state is None else pa.ipc.open_stream(state).read_all()
        return cls(events, {column: number for number, (column, _) in enumerate(types)})

    def dump(self) -> bytes:
        """Return the events as bytes."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._events.schema) as writer:
            writer.write_table(self._events.combine_chunks())
        data: bytes = sink.getvalue().to_pybytes()
        return data

    def add(self, frame: pd.DataFrame) -> None:
        """Add events as Spark hands them over."""
        schema = self._events.schema
        new = pa.Table.from_pandas(frame[schema.names], schema=schema, preserve_index=False)
        self._events = pa.concat_tables([self._events, new])

    def results(self, wanted: Iterable[Wanted], watermark_us: int, last_us: int) -> pd.DataFrame:
        """Return the results of the events that wait and lie before the watermark, in the order of their times."""
        events = self._events.sort_by([("key", "ascending"), ("at", "ascending")]).combine_chunks()
        at = events["at"].to_numpy()
        ready = pc.is_valid(events["event"]).to_numpy() & (at < watermark_us)
        rows, lows, highs = _windows(events["key"].combine_chunks(), at, ready, last_us)
        order = np.argsort(at[rows], kind="stable")
        rows, lows, highs = rows[order], lows[order], highs[order]
        columns: dict[str, Any] = {"event": events["event"].take(pa.array(rows)).to_pandas()}
        for number, each in enumerate(wanted):
            columns[f"r{number}"] = self._aggregate(events, each, lows, highs)
        return pd.DataFrame(columns)

    def expire(self, watermark_us: int, last_us: int) -> int | None:
        """Drop what no later window reaches; return the time that the bucket waits for, or None if it is empty."""
        at = self._events["at"]
        waits = pc.and_(pc.is_valid(self._events["event"]), pc.greater_equal(at, watermark_us))
        event = pc.if_else(waits, self._events["event"], pa.scalar(None, pa.string()))
        reached = pc.or_(waits, pc.greater(at, watermark_us - last_us))
        place = self._events.schema.get_field_index("event")
        self._events = self._events.set_column(place, "event", event).filter(reached)
        if len(self._events) == 0:
            return None
        times = self._events["at"].to_numpy()
        waiting = pc.is_valid(self._events["event"]).to_numpy()
        # Without anything that waits, it is kept until the watermark has left its last event behind.
        return int(times[waiting].min()) if waiting.any() else int(times.max()) + last_us

    def _aggregate(self, events: pa.Table, wanted: Wanted, lows: NDArray[Any], highs: NDArray[Any]) -> Any:
        if wanted.column is None:
            return highs - lows
        number = self._places[wanted.column]
        values, there = events[f"v{number}"].to_numpy(), events[f"p{number}"].to_numpy()
        before = np.concatenate([[0], np.cumsum(there)])
        counts = before[highs] - before[lows]
        if wanted.function == "count":
            return counts
        reduced = _reduce(
            wanted.function, np.where(there, values, _identity(wanted.function, values.dtype)), lows, highs
        )
        if wanted.function == "mean":
            about = _reduce("sum", np.where(there, values, 0).astype(np.float64), lows, highs)
            # Integers are added exactly, unless that goes beyond 64 bits.
            reduced = np.where(np.abs(about) < _EXACT, reduced, about) / np.maximum(counts, 1)
        if wanted.result == "bigint":
            return pd.arrays.IntegerArray(reduced, counts == 0)
        return pd.arrays.FloatingArray(reduced.astype(np.float64), counts == 0)


def _windows(
    keys: pa.Array, at: NDArray[Any], ready: NDArray[Any], last_us: int
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return the rows that are ready and where the window of each begins and ends, in rows sorted by key and time."""
    rows = np.flatnonzero(ready)
    lows, highs = np.empty_like(rows), np.empty_like(rows)
    codes = keys.dictionary_encode().indices.to_numpy() if len(keys) else np.empty(0, dtype=np.int32)
    edges = np.concatenate([[0], np.flatnonzero(np.diff(codes)) + 1, [len(codes)]])
    owners = np.searchsorted(edges, rows, side="right") - 1
    for owner in np.unique(owners):
        mine = slice(*np.searchsorted(owners, [owner, owner + 1]))
        begin, end = edges[owner], edges[owner + 1]
        times, asked = at[begin:end], at[rows[mine]]
        lows[mine] = begin + np.searchsorted(times, asked - last_us, side="right")
        highs[mine] = begin + np.searchsorted(times, asked, side="right")
    return rows, lows, highs


def _identity(function: str, dtype: np.dtype[Any]) -> Any:
    """Return the value that changes nothing where a null stands."""
    if function in ("sum", "mean"):
        return 0
    if np.issubdtype(dtype, np.floating):
        return np.nan  # which extremes pass over
    return np.iinfo(dtype).max if function == "min" else np.iinfo(dtype).min


def _reduce(function: str, values: NDArray[Any], lows: NDArray[Any], highs: NDArray[Any]) -> NDArray[Any]:
    """Reduce each slice by itself: running sums would round differently with every batch."""
    if len(lows) == 0:
        return values[:0]
    operation = {"min": np.fmin, "max": np.fmax}.get(function, np.add)
    bounds = np.column_stack([lows, highs]).ravel()
    reduced: NDArray[Any] = operation.reduceat(np.append(values, values[:1]), bounds)[::2]
    return reduced
