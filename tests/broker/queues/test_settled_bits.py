"""Offsets that are settled in no order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.broker.queues.settled import Settled
from headwater.broker.queues.settled_bits import SettledBits

OFFSET = st.integers(min_value=0, max_value=60)
STEP = st.one_of(
    st.tuples(st.just("add"), OFFSET, OFFSET),
    st.tuples(st.just("range"), OFFSET, OFFSET),
    st.tuples(st.just("clip"), OFFSET, OFFSET),
)


@given(st.lists(STEP, max_size=40))
def test_it_says_what_ranges_say(steps: list[tuple[str, int, int]]) -> None:
    ranges, bits = Settled(), SettledBits()
    for kind, first, second in steps:
        for settled in (ranges, bits):
            if kind == "add":
                settled.add(first)
            elif kind == "range":
                settled.add_range(min(first, second), max(first, second))
            else:
                settled.clip(first)
        assert bits.head == ranges.head
        assert list(bits.ranges()) == list(ranges.ranges())
        assert bits.end == ranges.end
        assert [offset in bits for offset in range(70)] == [offset in ranges for offset in range(70)]
        assert [bits.after(offset) for offset in range(70)] == [ranges.after(offset) for offset in range(70)]
        low, high = min(first, second), max(first, second)
        assert bits.unsettled(low, high) == ranges.unsettled(low, high)


def test_what_is_before_the_head_takes_no_memory() -> None:
    bits = SettledBits()
    bits.add(500_000)
    for start in range(0, 500_000, 1000):
        bits.add_range(start, start + 1000)
    assert bits.head == 500_001
    assert len(bits._bits) <= 65_537
