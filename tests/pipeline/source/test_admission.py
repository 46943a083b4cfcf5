from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from headwater.pipeline.source.admission import ASSUMED_BYTES, admit

_READ = st.dictionaries(st.integers(0, 5), st.integers(0, 1000), min_size=1)


@given(_READ, st.data(), st.none() | st.integers(1, 2000), st.none() | st.integers(1, 10**6))
def test_a_batch_is_bounded_and_always_goes_on(
    read: dict[int, int], data: st.DataObject, max_rows: int | None, max_bytes: int | None
) -> None:
    ends = {partition: at + data.draw(st.integers(0, 500)) for partition, at in read.items()}
    sizes = {partition: data.draw(st.floats(1, 5000)) for partition in read if data.draw(st.booleans())}
    found = admit(read, ends, max_rows=max_rows, max_bytes=max_bytes, row_bytes=sizes)
    taken = {partition: found[partition] - at for partition, at in read.items()}
    assert all(0 <= taken[partition] <= ends[partition] - at for partition, at in read.items())
    backlog = sum(ends.values()) - sum(read.values())
    if backlog:
        assert sum(taken.values()) >= 1
    if max_rows is not None:
        assert sum(taken.values()) <= max_rows
    if max_bytes is not None and sum(taken.values()) > 1:
        # Rounding up one record of each partition is as far as it may go beyond.
        size = sum(count * sizes.get(partition, ASSUMED_BYTES) for partition, count in taken.items())
        assert size <= max_bytes + sum(sizes.get(partition, ASSUMED_BYTES) for partition in read)


@given(_READ, st.data(), st.integers(1, 50))
def test_batches_one_after_the_other_reach_the_end(
    read: dict[int, int], data: st.DataObject, max_rows: int
) -> None:
    ends = {partition: at + data.draw(st.integers(0, 100)) for partition, at in read.items()}
    at = dict(read)
    for _ in range(sum(ends.values()) - sum(read.values())):
        at = admit(at, ends, max_rows=max_rows)
    assert at == ends


@given(st.integers(1, 1000), st.integers(1, 1000), st.integers(2, 500))
def test_each_partition_gives_the_same_share(a: int, b: int, max_rows: int) -> None:
    assume(a + b > max_rows)
    found = admit({0: 0, 1: 0}, {0: a, 1: b}, max_rows=max_rows)
    assert abs(found[0] - a * max_rows / (a + b)) <= 1
    assert sum(found.values()) == max_rows


def test_without_a_limit_all_is_taken_and_nothing_goes_back() -> None:
    assert admit({0: 7, 1: 9}, {0: 10, 1: 8, 2: 3}) == {0: 10, 1: 9, 2: 3}
