from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headwater.pipeline.source.event_time import Activity, holding, watermark

_PARTITIONS = st.integers(0, 4)


def reference(highs: dict[int, int], counted: list[int], lateness: int, before: int | None) -> int | None:
    reached: list[int] = []
    for partition in counted:
        if partition not in highs:
            return before
        reached.append(highs[partition] - lateness)
    if not reached:
        return before
    lowest = sorted(reached)[0]
    return lowest if before is None or lowest > before else before


@given(
    st.dictionaries(_PARTITIONS, st.integers(-(10**6), 10**6)),
    st.lists(_PARTITIONS, unique=True),
    st.integers(0, 1000),
    st.none() | st.integers(-(10**6), 10**6),
)
def test_the_watermark_is_the_lowest_high_and_never_goes_back(
    highs: dict[int, int], counted: list[int], lateness: int, before: int | None
) -> None:
    assert watermark(highs, counted, lateness, before) == reference(highs, counted, lateness, before)


def test_a_partition_not_seen_yet_holds_time_back() -> None:
    assert watermark({0: 50}, [0, 1], 0, None) is None
    assert holding({0: 50}, [0, 1]) == 1
    assert holding({}, []) is None


def test_idle_partitions_do_not_count_until_they_bring_something() -> None:
    activity = Activity(idle_ms=100)
    activity.observe({0: 5, 1: 5}, 0)
    assert activity.counted({0: 5, 1: 5}, 99) == [0, 1]
    assert activity.next_idle_in(99) == 1
    activity.observe({0: 6, 1: 5}, 90)
    assert activity.counted({0: 6, 1: 5}, 100) == [0]
    assert activity.next_idle_in(100) == 90
    activity.observe({0: 6, 1: 6}, 200)
    assert activity.counted({0: 6, 1: 6}, 200) == [1]


def test_what_is_still_to_be_read_counts_however_old() -> None:
    activity = Activity(idle_ms=100)
    activity.observe({0: 5}, 0)
    assert activity.counted({0: 4}, 10_000) == [0]
    assert activity.counted({0: 5}, 10_000) == []


class Partitions(RuleBasedStateMachine):
    """The activity of partitions against a list of all that happened."""

    def __init__(self) -> None:
        super().__init__()
        self.activity = Activity(idle_ms=50)
        self.now = 0
        self.ends: dict[int, int] = {}
        self.history: list[tuple[int, int]] = []

    @rule(partition=_PARTITIONS, count=st.integers(0, 2))
    def see(self, partition: int, count: int) -> None:
        if partition not in self.ends or count:
            self.history.append((self.now, partition))
        self.ends[partition] = self.ends.get(partition, 0) + count
        self.activity.observe(dict(self.ends), self.now)

    @precondition(lambda self: self.ends)
    @rule(ms=st.integers(1, 60))
    def wait(self, ms: int) -> None:
        self.now += ms

    @invariant()
    def counted_is_who_came_lately(self) -> None:
        lately = {partition for at, partition in self.history if self.now - at < 50}
        assert self.activity.counted(self.ends, self.now) == sorted(lately)


TestPartitions = Partitions.TestCase
