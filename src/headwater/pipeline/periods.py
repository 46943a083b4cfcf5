"""A statistic of an interval against the same of earlier intervals: the last, an hour, a day, a week before.

Intervals are named by their start. The one that a period goes back to is the one that starts exactly that much
earlier. With a time zone, days and weeks go by its calendar: the interval from 09:00 is compared with the one from
09:00 of the day before, which lies 23 or 25 hours back when the clocks have changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from headwater.app.durations import milliseconds
from headwater.core.errors import SettingError
from headwater.pipeline.keyed.logic import Logic, Step, pack, unpack

__all__ = ["Comparison", "VersusPrevious", "compare", "next_starts", "previous_start"]

DAY: Final = 86_400_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

Row = tuple[Any, ...]
Comparison = tuple[float | None, float | None, float | None, bool]
"""The statistic then, the change since, the ratio to it, and whether the interval is missing."""


def compare(value: float | None, previous: float | None, *, missing: bool) -> Comparison:
    """Compare a statistic with an earlier one.

    An interval that is missing is flagged, and gives no change and no ratio: nothing was seen then, which is not the
    same as zero. One that is there and null gives none either, and has no flag. There is no ratio to zero.
    """
    if missing or value is None or previous is None:
        return (None if missing else previous, None, None, missing)
    return (previous, value - previous, value / previous if previous else None, False)


def previous_start(start: int, period: int, tz: str | None = None) -> int | None:
    """Return the start that a period goes back to; whole days by the calendar of `tz`, if it is given.

    There is none where it would lie in an hour that the clocks skipped.
    """
    if tz is None or period % DAY:
        return start - period
    zone = ZoneInfo(tz)
    local = (_EPOCH + start * _MICROSECOND).astimezone(zone).replace(tzinfo=None)
    wanted = local - period * _MICROSECOND
    before = wanted.replace(tzinfo=zone).astimezone(UTC)
    return _micros(before) if before.astimezone(zone).replace(tzinfo=None) == wanted else None


def next_starts(start: int, period: int, tz: str | None = None) -> list[int]:
    """Return the starts that a period goes back from to this one: two where the clocks were put back in between."""
    if tz is None or period % DAY:
        return [start + period]
    zone = ZoneInfo(tz)
    local = (_EPOCH + start * _MICROSECOND).astimezone(zone).replace(tzinfo=None) + period * _MICROSECOND
    both = {_micros(local.replace(tzinfo=zone, fold=fold)) for fold in (0, 1)}
    return sorted(each for each in both if previous_start(each, period, tz) == start)


def _micros(time: datetime) -> int:
    return (time.astimezone(UTC) - _EPOCH) // _MICROSECOND


@dataclass(frozen=True)
class VersusPrevious(Logic):
    """Keyed by the group.

    Rows are (start, end, statistic), results (*key, start, end, statistic, then for each period: the statistic then,
    change, ratio, missing). An interval is compared when it comes. When one comes again with another value, or comes
    after one that is compared with it, then those come out again too: the last result of each interval is the same
    whatever the order. A result that is as it was is not repeated.

    An interval is kept for as long as one may come that is compared with it: until the watermark is the longest
    period and `corrections` past its end.
    """

    periods: tuple[int, ...]
    corrections: int = 0
    tz: str | None = None

    @classmethod
    def of(cls, periods: list[str], interval: str | None = None, tz: str | None = None) -> VersusPrevious:
        """Read periods as users write them.

        >>> VersusPrevious.of(["1 hour", "1 day"]).periods
        (3600000000, 86400000000)
        """
        micros = tuple(milliseconds(period) * 1000 for period in periods)
        if not micros or 0 in micros:
            raise SettingError('periods= has to be a list of durations, as in ["1 hour", "1 day", "1 week"]')
        if len(set(micros)) < len(micros):
            raise SettingError(f"periods= has the same one twice: {', '.join(periods)}")
        size = None if interval is None else milliseconds(interval) * 1000
        for text, period in zip(periods, micros, strict=True):
            if size is not None and (size == 0 or period % size):
                raise SettingError(
                    f"{text!r} is not a multiple of the interval, {interval!r}: no interval starts that much earlier"
                )
        return cls(micros, tz=tz)

    def step(self, key: Row, state: bytes | None, rows: list[Row], watermark: int) -> Step:
        """Compare what came, and what is compared with it."""
        known: dict[int, list[Any]] = {} if state is None else unpack(state)
        last = {start: [end, value] for start, end, value in rows}
        changed = {start: each for start, each in last.items() if known.get(start) != each}
        known.update(changed)
        touched = set(changed)
        for start in changed:
            for period in self.periods:
                touched.update(next_starts(start, period, self.tz))
        out = [(*key, *self._compared(start, known)) for start in sorted(touched) if start in known]
        kept = max(self.periods) + self.corrections + (DAY if self.tz else 0)
        left = {start: each for start, each in known.items() if each[0] + kept >= watermark}
        if not left:
            return Step(None, out)
        if state is None or changed or len(left) < len(known):
            state = pack(left)
        return Step(state, out, min(end for end, _ in left.values()) + kept)

    def _compared(self, start: int, known: dict[int, list[Any]]) -> Row:
        end, value = known[start]
        row: list[Any] = [start, end, value]
        for period in self.periods:
            before = previous_start(start, period, self.tz)
            then = None if before is None else known.get(before)
            row += compare(value, None if then is None else then[1], missing=then is None)
        return tuple(row)
