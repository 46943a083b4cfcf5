"""A stream meets a table: with the newest version of a row, or with the one that was valid at the event's time.

**The versions of a key** are ordered by (time of the change, `_version`); a change is valid from its own time on
until the next one's. An event at t meets the greatest version whose time is <= t; a delete is a version without a
row.

**Waiting (`as_of`).** Spark hands an operator one watermark W, the minimum of the stream's S and the table's T. All
changes before T have come, so an event at t has its answer for certain as soon as W > t: it waits for that, and
for nothing else. This implies:

- An event waits for its own stream too: also where the table is far ahead, it comes out when S has passed it. In
  return results come in the order of time, and what follows a lookup has no late events of its making.
- A quiet table holds nothing back: by the rule for quiet topics T follows S. An active table that lags does, and
  nothing that happens in `step` can tell, since W stands still. Hence `wait` is declared where watermarks are made:
  the source lets the table's time lag behind the stream's by no more than that. So W >= S - wait, and
  an event comes out at the latest when its stream's time is `wait` past it, with the version that is there by then.
- A change that comes after that is later than declared. It is never lost: it is valid for the events that are still
  to be answered. The table's changes must not be filtered for lateness for that reason. One that is older than a
  delete of which nothing is kept any more brings the row back.

As long as no change is later than declared, the results are the same for every order of arrival and every
division into batches, since an answer depends on the set of versions alone.

**Changes without a time** are valid from the last change before them on, by `_version`, or from the beginning where
there is none: rows of a snapshot, which were there before they were read, nobody knows since when, and the tombstones
that compaction leaves of a delete.

**What is kept (`as_of`).** Events at or after W may still come, or before it by `corrections` where the stream's
late events correct. Of the versions that are valid from then or earlier, only the last can be met, and the others
are dropped; a delete goes once W has passed it, since no row is no version as well. What is newer is kept.

**Without `as_of`** an event is answered in its batch, with the greatest `_version` that has come up to and with that
batch, whatever the times are. A key's changes lie in one partition, which is read in order, so that a delete can be
forgotten at once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, Literal

from headwater.pipeline.keyed.logic import Logic, Step, pack, unpack

__all__ = ["CHANGE", "EVENT", "Lookup"]

EVENT: Final = 0
CHANGE: Final = 1
_HEAD: Final = 4
_BEGINNING: Final = -(1 << 62)
_TIME: Final = itemgetter(0)
_ORDER: Final = itemgetter(0, 1, 2)
_VERSION: Final = itemgetter(0, 1)
_OFFSET: Final = itemgetter(2, 3)

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Lookup(Logic):
    """The logic of `lookup`, keyed by the table's key.

    Rows are (tag, time, first, second, *columns of events, *columns of the table), where the other side's columns
    are null:

        (EVENT, event time, partition, offset, *values, …)
        (CHANGE, changed at, version, deleted, …, *values)

    Results are the event's columns and the table's, null where there is no row. A row that was kept before columns
    were added at the end of `table` has nulls there.
    """

    events: tuple[str, ...]
    table: tuple[str, ...]
    how: Literal["left", "inner"] = "left"
    as_of: bool = False
    corrections: int = 0
    """How far behind the watermark events may lie, in µs: `corrections=` of a stream whose late events correct."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the result's columns."""
        return self.events + self.table

    def step(self, key: Row, state: bytes | None, rows: list[Row], watermark: int) -> Step:
        """Answer the events that can be answered; a null key meets no row, as in SQL, nor does a null time."""
        if None in key:
            return Step(None, self._answers(None, rows))
        if self.as_of:
            return self._valid(state, rows, watermark)
        return self._newest(state, rows)

    def _newest(self, state: bytes | None, rows: list[Row]) -> Step:
        known = None if state is None else unpack(state)
        change = None
        for row in rows:
            if row[0] == CHANGE and (change is None or row[2] > change[2]):
                change = row
        if change is not None and (known is None or change[2] >= known[0]):
            known = None if change[3] else [change[2], *self._row(change)]
            state = None if known is None else pack(known)
        return Step(state, self._answers(None if known is None else known[1:], rows))

    def _answers(self, found: list[Any] | None, rows: list[Row]) -> list[Row]:
        """Answer all events at once, in the order of the log."""
        if found is None and self.how == "inner":
            return []
        events = sorted((row for row in rows if row[0] == EVENT), key=_OFFSET)
        fields = self._fields(found)
        return [(*row[_HEAD : _HEAD + len(self.events)], *fields) for row in events]

    def _valid(self, state: bytes | None, rows: list[Row], watermark: int) -> Step:
        versions, waiting = ([], []) if state is None else unpack(state)
        timeless = []
        for row in rows:
            if row[0] == CHANGE:
                versions.append([row[1], row[2], bool(row[3]), *([] if row[3] else self._row(row))])
            elif row[1] is None:
                timeless.append(row)
            else:
                waiting.append([row[1], row[2], row[3], *row[_HEAD : _HEAD + len(self.events)]])
        if rows:
            _date(versions)
            versions.sort(key=_VERSION)
            waiting.sort(key=_ORDER)
        answered = bisect_left(waiting, watermark, key=_TIME)
        out = self._answers(None, timeless) + self._met(versions, waiting[:answered])
        del waiting[:answered]
        dropped = _unreachable(versions, watermark - self.corrections)
        del versions[:dropped]
        if not versions and not waiting:
            return Step(None, out)
        if state is None or rows or answered or dropped:
            state = pack([versions, waiting])
        return Step(state, out, self._due(versions, waiting))

    def _met(self, versions: list[list[Any]], events: list[list[Any]]) -> list[Row]:
        out = []
        for event in events:
            place = bisect_right(versions, event[0], key=_TIME)
            version = versions[place - 1] if place else None
            found = None if version is None or version[2] else version[3:]
            if found is not None or self.how == "left":
                # An event that has waited since before columns were added has none of them.
                missing = [None] * (len(self.events) + 3 - len(event))
                out.append((*event[3:], *missing, *self._fields(found)))
        return out

    def _due(self, versions: list[list[Any]], waiting: list[list[Any]]) -> int | None:
        """Return when an event has its answer, or a version has had its last."""
        times = [waiting[0][0]] if waiting else []
        if len(versions) > 1:
            times.append(versions[1][0] + self.corrections)
        if versions and versions[0][2]:
            times.append(versions[0][0] + self.corrections)
        return min(times, default=None)

    def _row(self, change: Row) -> Row:
        return change[_HEAD + len(self.events) :]

    def _fields(self, found: list[Any] | None) -> list[Any]:
        if found is None:
            return [None] * len(self.table)
        return found + [None] * (len(self.table) - len(found))


def _date(versions: list[list[Any]]) -> None:
    """Give changes without a time that of the last change before them."""
    if any(each[0] is None for each in versions):
        latest = _BEGINNING
        for each in sorted(versions, key=itemgetter(1)):
            if each[0] is None:
                each[0] = latest
            latest = max(latest, each[0])


def _unreachable(versions: list[list[Any]], horizon: int) -> int:
    """Return how many of the first versions no event at or after `horizon` can meet."""
    valid = bisect_right(versions, horizon, key=_TIME)
    if not valid:
        return 0
    last = versions[valid - 1]
    return valid if last[2] and last[0] < horizon else valid - 1
