"""Partial results of groups in Spark's state, a bucket of groups at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from headwater.pipeline.packing import frame, pack, tables, unpack
from headwater.pipeline.summaries import Summary

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import (
        ExpiredTimerInfo,
        StatefulProcessorHandle,
        TimerValues,
    )

__all__ = ["SummaryProcessor"]

_MERGE_FROM: Final = 64
"""How many entries lie side by side before they are put together."""
_ENTRY_ROWS: Final = 64 * 1024
"""The most groups in one entry of Spark's state."""


class SummaryProcessor(StatefulProcessor):
    """Runs a summary over buckets of groups, with one timer for each bucket."""

    def __init__(self, summary: Summary) -> None:
        self._summary = summary

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Take the handles of Spark's state."""
        self._handle = handle
        self._kept = handle.getListState("partial", "rows binary")
        self._head = handle.getValueState("head", "entries int, timer bigint")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        """Keep what a batch brings to a bucket."""
        added = list(tables(rows))
        head = self._head.get() if self._head.exists() else None
        entries, timer = (0, None) if head is None else head
        anew = entries >= _MERGE_FROM
        partial = self._summary.folded([*self._stored(), *added] if anew else added)
        written = self._write(partial, anew=anew)
        first = _closing(partial)
        if timer is None or first < timer:
            if timer is not None:
                self._handle.deleteTimer(timer)
            self._handle.registerTimer(first)
            timer = first
        self._head.update((written if anew else entries + written, timer))
        yield from ()

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[pd.DataFrame]:
        """Give out the groups whose windows have closed."""
        watermark = timerValues.getCurrentWatermarkInMs() * 1000
        closed, still = self._summary.closed(self._summary.folded(self._stored()), watermark)
        if still.num_rows:
            timer = _closing(still)
            self._head.update((self._write(still, anew=True), timer))
            self._handle.registerTimer(timer)
        else:
            self._kept.clear()
            self._head.clear()
        yield frame(self._summary.results(closed))

    def close(self) -> None:
        """Leave nothing open."""

    def _stored(self) -> list[pa.Table]:
        return [unpack(bytes(entry)) for (entry,) in self._kept.get()]

    def _write(self, table: pa.Table, *, anew: bool) -> int:
        entries = [(pack(table.slice(at, _ENTRY_ROWS)),) for at in range(0, table.num_rows, _ENTRY_ROWS)]
        if anew:
            self._kept.put(entries)
        else:
            self._kept.appendList(entries)
        return len(entries)


def _closing(table: pa.Table) -> int:
    """Return when the first window closes, in ms: Spark fires a timer once the watermark has reached it."""
    first: int = pc.min(table["end"]).cast(pa.int64()).as_py()
    return -(-first // 1000)
