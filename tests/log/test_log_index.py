from __future__ import annotations

from bisect import bisect_right

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.log.index import HEADER_SIZE, Coverage, SparseIndex, decode, read_coverage

steps = st.lists(
    st.tuples(st.integers(1, 1000), st.integers(61, 100_000), st.integers(0, 500)), min_size=0, max_size=30
)


def built(rows: list[tuple[int, int, int]]) -> tuple[SparseIndex, list[tuple[int, int, int]], Coverage]:
    index, entries = SparseIndex(), []
    offset = position = 0
    largest = 1000
    for offsets, size, later in rows:
        offset, position, largest = offset + offsets, position + size, largest + later
        index.add(offset, position, largest)
        entries.append((offset, position, largest))
    return index, entries, Coverage(position + 100, offset + 1, 1000, largest + 5, position)


@settings(max_examples=100, deadline=None)
@given(rows=steps)
def test_an_index_reads_as_it_was_written(rows: list[tuple[int, int, int]]) -> None:
    index, entries, coverage = built(rows)
    data = index.encode(coverage)
    assert read_coverage(data[:HEADER_SIZE], len(data)) == coverage
    loaded = decode(data)
    assert loaded is not None
    again, covered = loaded
    assert covered == coverage
    assert list(zip(again.offsets, again.positions, again.times, strict=True)) == entries


@settings(max_examples=30, deadline=None)
@given(rows=steps, bit=st.integers(0, 7))
def test_an_index_with_any_flipped_bit_or_any_end_missing_is_none(
    rows: list[tuple[int, int, int]], bit: int
) -> None:
    index, _, coverage = built(rows)
    data = index.encode(coverage)
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << bit
        assert decode(bytes(damaged)) is None
        if position < HEADER_SIZE:
            assert read_coverage(bytes(damaged[:HEADER_SIZE]), len(data)) is None
        assert decode(data[:position]) is None
    assert decode(bytes(len(data))) is None
    assert decode(data + b"\0") is None


@settings(max_examples=100, deadline=None)
@given(
    rows=steps, offset=st.integers(0, 40_000), position=st.integers(0, 3_000_000), time=st.integers(0, 20_000)
)
def test_look_ups(rows: list[tuple[int, int, int]], offset: int, position: int, time: int) -> None:
    index, entries, _ = built(rows)
    at = [(0, 0), *((o, p) for o, p, _ in entries)]
    assert index.floor(offset) == max(e for e in at if e[0] <= offset)
    assert index.at_or_before(position) == max(e for e in at if e[1] <= position)
    assert index.ceiling(position) == next((e for e in at[1:] if e[1] > position), None)
    assert index.before_time(time) == max([(0, 0), *((o, p) for o, p, t in entries if t < time)])


def test_only_what_is_covered_is_written() -> None:
    index, entries, coverage = built([(10, 4096, 1)] * 10)
    cut = Coverage(entries[4][1] + 50, entries[4][0] + 3, 0, 0, 0)
    loaded = decode(index.encode(cut))
    assert loaded is not None
    assert list(loaded[0].positions) == [p for _, p, _ in entries[:5]]
    assert len(index) == 10
    assert bisect_right(list(index.positions), coverage.position) == 10
