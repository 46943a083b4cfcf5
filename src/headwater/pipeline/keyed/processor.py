"""Rows meet their key's state in Spark's Python workers, a bucket of keys at a time.

Spark's state API costs about a millisecond for each key it is asked for, so it is asked for none: for each bucket
it holds a list with one entry per batch, of what the batch changed, and the state itself is kept in a file
beside the worker (`cache`). A batch costs what its rows cost, and not what all keys do. When the entries are several
times what is left of them, they are written anew.

One timer of Spark's per bucket stands for the timers of all its keys.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from headwater.pipeline.keyed.logic import Logic, PagedLogic, Step, pack, unpack
from headwater.pipeline.keyed.pages import KeyPages
from headwater.pipeline.packing import frame, plain_values, tables

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import (
        ExpiredTimerInfo,
        StatefulProcessorHandle,
        TimerValues,
    )

    from headwater.pipeline.keyed.cache import Cache, Change


__all__ = ["BucketProcessor"]

_ENTRY: Final = 4 * 1024 * 1024
"""The most bytes of one entry, about."""
_REWRITE_FROM: Final = 16 * 1024 * 1024
_REWRITE_RATIO: Final = 3
_FIRST_WATERMARK: Final = 0


class BucketProcessor(StatefulProcessor):
    """Runs a logic over buckets of keys.

    Rows have `keys` columns that make the key, then what the logic gets.
    """

    def __init__(self, logic: Logic | PagedLogic, keys: int, results: pa.Schema, cache: str | None) -> None:
        self._logic = logic
        self._keys = keys
        self._results = results
        self._cache = Path(cache or tempfile.gettempdir()) / "headwater-state"
        self._name = uuid.uuid4().hex

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Take the handles of Spark's state."""
        self._handle = handle
        self._entries = handle.getListState("changes", "entry binary")
        self._head = handle.getValueState("head", "name string, bytes bigint, kept bigint, timer bigint")

    def handleInputRows(
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,
    ) -> Iterator[pd.DataFrame]:
        """Take a bucket's new rows."""
        grouped: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
        keys = self._keys
        for table in tables(rows):
            columns = [plain_values(column) for column in table.columns]
            for name, row in zip(
                zip(*columns[:keys], strict=True), zip(*columns[keys:], strict=True), strict=True
            ):
                if name in grouped:
                    grouped[name].append(row)
                else:
                    grouped[name] = [row]
        yield self._work(key[0], grouped, timerValues)

    def handleExpiredTimer(
        self,
        key: Any,
        timerValues: TimerValues,
        expiredTimerInfo: ExpiredTimerInfo,
    ) -> Iterator[pd.DataFrame]:
        """Look at the keys of a bucket that are due."""
        yield self._work(key[0], {}, timerValues)

    def close(self) -> None:
        """Leave nothing open."""

    def _work(
        self, bucket: int, grouped: dict[tuple[Any, ...], list[tuple[Any, ...]]], times: TimerValues
    ) -> pd.DataFrame:
        from headwater.pipeline.keyed.cache import Cache

        watermark = max(times.getCurrentWatermarkInMs() * 1000, _FIRST_WATERMARK)
        head = self._head.get()
        cache = Cache(self._cache / self._name / str(bucket))
        try:
            cache.begin(None if head is None else head[0], self._stored())
            out: list[tuple[Any, ...]] = []
            changes = self._stepped(cache, grouped, watermark, out)
            name = uuid.uuid4().hex
            self._save(cache, changes, head, name, watermark // 1000)
            cache.end(name)
        finally:
            cache.close()
        return self._frame(out)

    def _stored(self) -> Iterator[list[Change]]:
        for (entry,) in self._entries.get():
            yield unpack(bytes(entry))

    def _stepped(
        self,
        cache: Cache,
        grouped: dict[tuple[Any, ...], list[tuple[Any, ...]]],
        watermark: int,
        out: list[tuple[Any, ...]],
    ) -> list[Change]:
        """Take the new rows and those keys that are due, and return what has changed."""
        changes: list[Change] = []
        due = {packed: tuple(unpack(packed)) for packed in cache.due(watermark)}
        work = [(pack(key), key, rows) for key, rows in grouped.items()]
        work += [(packed, due[packed], []) for packed in due.keys() - {packed for packed, _, _ in work}]
        for packed, key, rows in work:
            before = cache.get(packed)
            done: Step
            if self._logic.paged is True:
                pages = KeyPages(cache, packed)
                done = self._logic.step(key, before, rows, watermark, pages)
                changes += pages.changes()
            else:
                done = self._logic.step(key, before, rows, watermark)
            out += done.out
            if done.state is not None or before is not None:
                changes.append((packed, done.state, done.due))
        cache.apply(changes)
        return changes

    def _save(self, cache: Cache, changes: list[Change], head: Any, name: str, watermark_ms: int) -> None:
        """Write what has changed to Spark's state, or everything where that has become shorter."""
        written, kept, timer = (0, 0, None) if head is None else head[1:]
        entries = list(_entries(changes))
        written += sum(map(len, entries))
        if written > max(_REWRITE_FROM, _REWRITE_RATIO * kept):
            entries = list(_entries(cache.everything()))
            written = kept = sum(map(len, entries))
            self._entries.put([(entry,) for entry in entries])
        elif entries:
            self._entries.appendList([(entry,) for entry in entries])
        next_due = cache.next_due()
        # Spark fires a timer once the watermark, in milliseconds, has reached it; ours are due when it has passed them.
        wanted = None if next_due is None else next_due // 1000 + 1
        if wanted != timer:
            if (
                timer is not None and timer > watermark_ms
            ):  # one that fires in this batch Spark deletes itself
                self._handle.deleteTimer(timer)
            if wanted is not None:
                self._handle.registerTimer(wanted)
        self._head.update((name, written, kept, wanted))

    def _frame(self, out: list[tuple[Any, ...]]) -> pd.DataFrame:
        columns = list(zip(*out, strict=True)) if out else [() for _ in self._results]
        return frame(pa.table([list(values) for values in columns], schema=self._results))


def _entries(changes: Iterable[Change]) -> Iterator[bytes]:
    """Yield changes as entries of a handy size."""
    some: list[Change] = []
    size = 0
    for change in changes:
        some.append(change)
        size += len(change[0]) + (0 if change[1] is None else len(change[1]))
        if size > _ENTRY:
            yield pack(some)
            some, size = [], 0
    if some:
        yield pack(some)
