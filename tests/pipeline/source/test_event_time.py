from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headwater.pipeline.source.event_time import Activity, holding, later, watermark

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
    assert activity.active({0: 5, 1: 5}, 99) == [0, 1]
    assert activity.next_idle_in(99) == 1
    activity.observe({0: 6, 1: 5}, 90)
    assert activity.active({0: 6, 1: 5}, 100) == [0]
    assert activity.next_idle_in(100) == 90
    activity.observe({0: 6, 1: 6}, 200)
    assert activity.active({0: 6, 1: 6}, 200) == [1]


def test_what_is_still_to_be_read_counts_however_old() -> None:
    activity = Activity(idle_ms=100)
    activity.observe({0: 5}, 0)
    assert activity.active({0: 4}, 10_000) == [0]
    assert activity.active({0: 5}, 10_000) == []


def test_nobody_is_idle_before_the_first_look() -> None:
    activity = Activity(idle_ms=100)
    assert not activity.idle({}, 10_000)
    activity.observe({0: 0}, 10_000)
    assert not activity.idle({0: 0}, 10_099)
    assert activity.idle({0: 0}, 10_100)


@given(
    st.lists(st.integers(0, 90), min_size=4, max_size=4),
    st.dictionaries(_PARTITIONS.filter(lambda partition: partition < 4), st.integers(0, 1000), min_size=1),
    st.lists(st.integers(0, 300), max_size=5),
)
def test_whatever_the_order_in_which_all_fall_idle_time_goes_as_far_as_the_last(
    grew: list[int], highs: dict[int, int], looks: list[int]
) -> None:
    activity = Activity(idle_ms=100)
    ends = dict.fromkeys(range(4), 1)
    for partition in sorted(ends, key=lambda partition: grew[partition]):
        activity.observe({partition: 1}, grew[partition])
    reached: int | None = None
    for now in [*sorted(look for look in looks if look > 90), 500]:
        before = reached
        reached = watermark(highs, activity.counted(ends, highs, now), 0, before)
        assert before is None or (reached is not None and reached >= before)
    last = max(grew[partition] for partition in highs)
    assert reached is not None
    assert reached >= min(high for partition, high in highs.items() if grew[partition] == last)


def test_of_two_times_the_later_and_either_may_be_unknown() -> None:
    assert (later(1, 2), later(2, 1), later(None, 1), later(1, None)) == (2, 2, 1, 1)
    assert later(None, None) is None


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
        assert self.activity.active(self.ends, self.now) == sorted(lately)

    @invariant()
    def those_who_came_last_count_when_all_are_idle(self) -> None:
        timed = [partition for partition in self.ends if partition % 2]
        last = max((at for at, partition in self.history if partition in timed), default=None)
        counted = self.activity.counted(self.ends, timed, self.now)
        if self.activity.active(self.ends, self.now):
            assert counted == self.activity.active(self.ends, self.now)
        else:
            assert set(counted) == {p for at, p in self.history if at == last and p in timed}


TestPartitions = Partitions.TestCase
