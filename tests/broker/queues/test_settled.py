"""Settled offsets against a plain set of them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headwater.broker.queues.settled import Settled, decode_ranges, encode_ranges, ranges_of

OFFSETS = st.integers(0, 60)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), OFFSETS, OFFSETS),
        st.tuples(st.just("range"), OFFSETS, OFFSETS),
        st.tuples(st.just("clip"), OFFSETS, OFFSETS),
    ),
    max_size=40,
)


@given(STEPS, OFFSETS, OFFSETS)
def test_settled_is_a_set_of_offsets(steps: list[tuple[str, int, int]], start: int, stop: int) -> None:
    settled = Settled()
    model: set[int] = set()
    for what, first, last in steps:
        if what == "add":
            if first not in model:
                settled.add(first)
            model.add(first)
        elif what == "range":
            settled.add_range(first, last)
            model |= set(range(first, last))
        else:
            assert settled.clip(first) == any(offset >= first for offset in model)
            model = {offset for offset in model if offset < first}
        assert {offset for offset in range(70) if offset in settled} == model
    assert settled.unsettled(start, stop) == len(set(range(start, stop)) - model)
    assert settled.end == max(model, default=-1) + 1
    ranges = list(settled.ranges())
    assert set(range(settled.head)) | {o for pair in ranges for o in range(*pair)} == model
    assert all(
        before[1] < after[0] for before, after in zip([(0, settled.head), *ranges], ranges, strict=False)
    )
    assert decode_ranges(encode_ranges(ranges)) == ranges


@given(st.sets(st.integers(0, 200)))
def test_ranges_of_offsets_hold_them_and_nothing_else(offsets: set[int]) -> None:
    ranges = ranges_of(offsets)
    assert {offset for pair in ranges for offset in range(*pair)} == offsets
    assert all(before[1] < after[0] for before, after in pairwise(ranges))
