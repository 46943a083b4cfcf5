"""Records found by the kernel against those that plain Python reads."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from headwater.pipeline.source import kernel
from headwater.pipeline.source.opened import OpenedFetch, headers_of
from headwater.record.batch import (
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    CorruptBatch,
    checksum,
    read_header,
    write_header,
)
from headwater.record.codecs import Codec
from headwater.record.committed import committed_batches
from headwater.record.records import Record, decode_batch, encode_batch

pytestmark = pytest.mark.real  # the kernels are compiled at the first use

_BYTES = st.none() | st.binary(max_size=40)
_HEADERS = st.lists(st.tuples(st.text(max_size=5), _BYTES), max_size=2).map(tuple)
ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"


@st.composite
def _logs(draw: st.DrawFn) -> tuple[bytes, int]:
    data = bytearray()
    base = draw(st.integers(0, 10**12))
    for _ in range(draw(st.integers(1, 4))):
        offsets = sorted(draw(st.sets(st.integers(0, 20), min_size=1, max_size=5)))
        records = [
            Record(offset, draw(st.integers(0, 2**41)), draw(_BYTES), draw(_BYTES), draw(_HEADERS))
            for offset in offsets
        ]
        attributes = draw(st.sampled_from([0, LOG_APPEND_TIME]))
        codec = draw(st.sampled_from(Codec))
        data += encode_batch(records, base_offset=base, codec=codec, attributes=attributes)
        base += offsets[-1] - offsets[0] + 1
    return bytes(data), base


def read(data: bytes, aborted: list[tuple[int, int]], first: int, stop: int) -> list[Record]:
    found = []
    for records in OpenedFetch(memoryview(bytearray(data)), aborted).records(first, stop):
        for row in range(len(records)):
            offset, time = (int(records.table[row, column]) for column in (kernel.OFFSET, kernel.TIME))
            headers = tuple(headers_of(records, row))
            found.append(Record(offset, time, records.key(row), records.value(row), headers))
    return found


def read_plainly(data: bytes, aborted: list[tuple[int, int]], first: int, stop: int) -> list[Record]:
    return [
        record
        for position, _ in committed_batches(data, aborted)
        for record in decode_batch(data, position)
        if first <= record.offset < stop
    ]


@settings(max_examples=examples(200), deadline=None)
@given(_logs(), st.integers(-5, 100), st.integers(0, 100), st.integers(0, 60))
def test_any_batches_are_read_like_in_plain_python(
    log: tuple[bytes, int], before_end: int, length: int, cut: int
) -> None:
    data, end = log
    first = max(end - before_end, 0)
    opened = OpenedFetch(memoryview(bytearray(data)), [])
    assert opened.next_offset == end
    assert read(data, [], first, first + length) == read_plainly(data, [], first, first + length)
    cut_off = data[: len(data) - cut]
    assert read(cut_off, [], 0, 2**62) == read_plainly(cut_off, [], 0, 2**62)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(_BYTES, min_size=1, max_size=3), st.sampled_from(Codec), st.data())
def test_damage_is_found(values: list[bytes | None], codec: Codec, data: st.DataObject) -> None:
    damaged = encode_batch([Record(i, 0, None, value) for i, value in enumerate(values)], codec=codec)
    at = data.draw(st.integers(17, len(damaged) - 1))  # all that the checksum covers, and itself
    damaged[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptBatch):
        read(bytes(damaged), [], 0, 2**62)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(_BYTES, min_size=1, max_size=3), st.data())
def test_a_batch_that_lies_under_its_checksum_is_refused(
    values: list[bytes | None], data: st.DataObject
) -> None:
    lying = encode_batch([Record(i, 0, None, value) for i, value in enumerate(values)])
    at = data.draw(st.integers(HEADER_SIZE, len(lying) - 1))
    lying[at] ^= data.draw(st.integers(1, 255))
    write_header(lying, 0, read_header(lying)._replace(crc=checksum(lying, 0, len(lying))))
    try:
        found = read(bytes(lying), [], 0, 2**62)
    except CorruptBatch:
        return
    assert len(found) <= len(values)


def _batch(offset: int, producer: int, *values: bytes, attributes: int = TRANSACTIONAL) -> bytes:
    rows = [Record(i, 0, value if attributes & CONTROL else None, value) for i, value in enumerate(values)]
    return bytes(encode_batch(rows, base_offset=offset, producer_id=producer, attributes=attributes))


def test_aborted_transactions_are_left_out_up_to_their_marker() -> None:
    control = TRANSACTIONAL | CONTROL
    data = b"".join(
        [
            _batch(0, 1, b"a0", b"a1"),
            _batch(2, 2, b"b2"),
            _batch(3, -1, b"plain", attributes=0),
            _batch(4, 1, b"a4"),
            _batch(5, 1, ABORT, attributes=control),
            _batch(6, 1, b"kept6"),
            _batch(7, 2, COMMIT, attributes=control),
            _batch(8, 1, COMMIT, attributes=control),
        ]
    )
    found = read(data, [(1, 0)], 0, 100)
    assert [record.value for record in found] == [b"b2", b"plain", b"kept6"]
    assert found == read_plainly(data, [(1, 0)], 0, 100)


def test_what_is_no_batch_is_refused() -> None:
    with pytest.raises(CorruptBatch, match="no record batch"):
        OpenedFetch(memoryview(bytearray(100)), [])
