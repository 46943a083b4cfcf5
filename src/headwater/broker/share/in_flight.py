"""The records of a share partition that are in flight, as runs of neighbours in the same state.

    start ............................................... end
    | acknowledged | acquired by a, once | available, twice |
    [   batch of 0 to 9                ] [ batch of 10 to 14 ]

The runs cover every offset from `start` up to `end` without gaps. Most of the time a whole fetch is one run,
so what a partition holds follows how its records were treated, not how many they are. Runs of different
batches are never joined: what is taken together is delivered again together, and near the delivery limit
in smaller and smaller parts of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from enum import IntEnum

NOBODY = ""
"""The owner of records that are not acquired."""


class RecordState(IntEnum):
    """What became of a record; Kafka's numbers."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4

    @property
    def is_final(self) -> bool:
        """Whether the record is never delivered again."""
        return self >= RecordState.ACKNOWLEDGED


class Batch:
    """The offsets that were taken together at first."""

    __slots__ = ("first", "last")

    def __init__(self, first: int, last: int) -> None:
        self.first = first
        self.last = last

    def __len__(self) -> int:
        return self.last - self.first + 1


class Run:
    """Neighbouring records of one batch that have the same state."""

    __slots__ = ("batch", "deadline_ms", "deliveries", "first", "last", "owner", "state")

    def __init__(
        self,
        batch: Batch,
        first: int,
        last: int,
        state: RecordState,
        deliveries: int,
        owner: str = NOBODY,
        deadline_ms: int = 0,
    ) -> None:
        self.batch = batch
        self.first = first
        self.last = last
        self.state = state
        self.deliveries = deliveries
        """How often the records were delivered."""
        self.owner = owner
        """The member that has acquired them."""
        self.deadline_ms = deadline_ms
        """When it loses them, by the monotonic clock."""

    def __len__(self) -> int:
        return self.last - self.first + 1

    def between(self, first: int, last: int) -> Run:
        """Return a copy for some of the offsets."""
        return Run(self.batch, first, last, self.state, self.deliveries, self.owner, self.deadline_ms)

    def joins(self, other: Run) -> bool:
        """Whether the run after this one is the same but for its offsets."""
        return (
            self.batch is other.batch
            and self.state is other.state
            and self.deliveries == other.deliveries
            and self.owner == other.owner
            and self.deadline_ms == other.deadline_ms
        )


class InFlight:
    """Runs in the order of their offsets, without gaps."""

    __slots__ = ("_runs", "end", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        """The first offset that is in flight, or comes next where none is."""
        self.end = start
        """The offset after the last."""
        self._runs: list[Run] = []

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def __len__(self) -> int:
        """How many offsets are in flight."""
        return self.end - self.start

    def copy(self) -> InFlight:
        """Return the same, to be changed apart."""
        other = InFlight(self.start)
        other.end = self.end
        other._runs = [run.between(run.first, run.last) for run in self._runs]
        return other

    def overlapping(self, first: int, last: int) -> list[Run]:
        """Return the runs that have an offset from `first` to `last`."""
        runs = self._runs
        i = max(self._find(first), 0)
        found = []
        while i < len(runs) and runs[i].first <= last:
            if runs[i].last >= first:
                found.append(runs[i])
            i += 1
        return found

    def cut_out(self, first: int, last: int) -> list[Run]:
        """Return the runs that are exactly the offsets from `first` to `last`, to be changed in place.

        The caller joins them again with `tidy`.
        """
        first, last = max(first, self.start), min(last, self.end - 1)
        if first > last:
            return []
        low = self._cut(first)
        high = self._cut(last + 1)
        return self._runs[low:high]

    def append(self, run: Run) -> None:
        """Add a run that begins at the end."""
        assert run.first == self.end, "offsets have no gaps"
        if not self._runs:
            self.start = run.first
        self._runs.append(run)
        self.end = run.last + 1

    def tidy(self) -> None:
        """Join neighbours that are the same, and forget those at the start that are final."""
        kept: list[Run] = []
        for run in self._runs:
            if not kept and run.state.is_final:
                continue
            if kept and kept[-1].joins(run):
                kept[-1].last = run.last
            else:
                kept.append(run)
        self._runs = kept
        self.start = kept[0].first if kept else self.end

    def move_start(self, offset: int) -> None:
        """Forget what is before `offset`, whatever became of it."""
        if offset <= self.start:
            return
        if offset >= self.end:
            self._runs.clear()
            self.end = offset
        else:
            del self._runs[: self._cut(offset)]
        self.start = offset

    def _find(self, offset: int) -> int:
        """Return the place of the run that holds `offset`, of the last run past the end, or -1 before the start."""
        return bisect_right(self._runs, offset, key=_first) - 1

    def _cut(self, offset: int) -> int:
        """Have a run begin at `offset`, and return its place."""
        i = self._find(offset)
        if i < 0:
            return 0
        run = self._runs[i]
        if run.first == offset:
            return i
        if offset <= run.last:
            self._runs.insert(i + 1, run.between(offset, run.last))
            run.last = offset - 1
        return i + 1


def _first(run: Run) -> int:
    return run.first
