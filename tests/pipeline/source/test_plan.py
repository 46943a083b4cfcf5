from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from headwater.pipeline.source.offsets import SourceOffset
from headwater.pipeline.source.tasks import SMALL_ROWS, Range, plan, ranges_between

_OFFSETS = st.dictionaries(st.integers(0, 9), st.integers(0, 200_000))
_SOURCE_OFFSETS = st.builds(
    SourceOffset,
    _OFFSETS,
    st.dictionaries(st.integers(0, 9), st.integers(-(2**62), 2**62)),
    st.none() | st.integers(-(2**62), 2**62),
    st.none() | st.uuids().map(str),
    st.integers(0, 9),
)


@given(_SOURCE_OFFSETS)
def test_an_offset_survives_the_checkpoint(offset: SourceOffset) -> None:
    document = json.loads(json.dumps(offset.dump()))
    assert SourceOffset.parse(document) == offset


@given(_OFFSETS, _OFFSETS, st.none() | st.integers(0, 5), st.none() | st.integers(0, 5))
def test_tasks_read_what_lies_between_once(
    start: dict[int, int], ends: dict[int, int], before: int | None, after: int | None
) -> None:
    first, last = SourceOffset(start, watermark=before), SourceOffset(ends, watermark=after)
    tasks = plan(first, last, None)
    read = sorted(each for task in tasks for each in task.ranges)
    assert read == sorted(
        Range(partition, start.get(partition, 0), end)
        for partition, end in ends.items()
        if end > start.get(partition, 0)
    )
    risen = after is not None and after != before
    assert sum(task.marker for task in tasks) == risen
    assert all(task.watermark == after for task in tasks)
    rows = sum(each.end - each.start for each in read)
    assert len(tasks) <= max(1 + rows // SMALL_ROWS, int(risen))


def test_a_topic_created_again_is_read_from_its_start() -> None:
    start = SourceOffset({0: 100}, topic_id="one")
    assert ranges_between(start, SourceOffset({0: 20}, topic_id="two")) == [Range(0, 0, 20)]
    assert ranges_between(start, SourceOffset({0: 120}, topic_id="one")) == [Range(0, 100, 120)]


def test_after_a_start_the_watermark_is_told_once_more_if_it_is_known() -> None:
    before, after = SourceOffset({0: 1}, watermark=4), SourceOffset({0: 1}, watermark=4, starts=1)
    assert after.moved(before)
    [task] = plan(before, after, None)
    assert (task.ranges, task.watermark, task.marker) == ((), 4, True)
    assert plan(after, after, None) == []
    assert not SourceOffset({0: 1}, starts=1).moved(SourceOffset({0: 1}))


def test_highs_alone_are_no_reason_for_a_batch() -> None:
    start = SourceOffset({0: 1}, {0: 5}, 4)
    assert not SourceOffset({0: 1}, {0: 9}, 4).moved(start)
    assert SourceOffset({0: 1}, {0: 9}, 8).moved(start)
