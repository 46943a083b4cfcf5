"""Values in a batch are the bytes that `encode_batch` makes of them, and come back as they were."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.record.batch import CorruptBatch, check
from headwater.record.records import Record, encode_batch
from headwater.record.values import decode_values, encode_values

# Around the numbers from which on a length takes one byte more.
SIZES = st.one_of(
    st.integers(0, 200), st.integers(8180, 8200), st.integers((1 << 20) - 4, (1 << 20) + 4), st.just(1 << 21)
)


def same(values: list[bytes], timestamp: int = 5) -> None:
    batch, header = encode_values(values, timestamp)
    assert batch == encode_batch(Record(i, timestamp, None, value) for i, value in enumerate(values))
    assert check(batch, 0, len(batch)) == header
    assert decode_values(batch, 0, header) == values
    assert decode_values(memoryview(b"before" + batch), 6, header) == values


@given(st.lists(SIZES, min_size=1, max_size=6), st.integers(0, 2**48))
def test_values_of_any_size(sizes: list[int], timestamp: int) -> None:
    same([bytes([i]) * size for i, size in enumerate(sizes)], timestamp)


@given(st.lists(st.binary(max_size=70), min_size=1, max_size=130))
def test_any_values(values: list[bytes]) -> None:
    same(values)


def test_so_many_values_that_their_numbers_take_three_bytes() -> None:
    same([b"%d" % i for i in range(8300)])


@given(st.data())
def test_a_batch_that_is_not_what_it_says_is_refused(data: st.DataObject) -> None:
    values = [b"a" * 10, b"b" * 300]
    batch, header = encode_values(values, 5)
    count = data.draw(st.sampled_from([0, 1, 3]))
    with pytest.raises(CorruptBatch):
        decode_values(batch, 0, header._replace(record_count=count))
