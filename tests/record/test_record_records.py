from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from headwater.record.batch import HEADER_SIZE, CorruptBatch, check, checksum, read_header, write_header
from headwater.record.codecs import Codec, TooLarge
from headwater.record.records import Record, decode_batch, decode_varint, encode_batch, encode_varint

maybe_bytes = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=8), maybe_bytes), max_size=3).map(tuple)
timestamps = st.integers(-1, 2**45)


@st.composite
def rows(draw: st.DrawFn) -> list[Record]:
    offset = 0
    out = []
    for _ in range(draw(st.integers(1, 12))):
        out.append(Record(offset, draw(timestamps), draw(maybe_bytes), draw(maybe_bytes), draw(headers)))
        offset += draw(st.sampled_from([1, 1, 1, 2, 1000]))
    return out


@settings(max_examples=examples(150), deadline=None)
@given(rows=rows(), codec=st.sampled_from(list(Codec)), base=st.integers(0, 2**62))
def test_records_come_out_as_they_went_in(rows: list[Record], codec: Codec, base: int) -> None:
    batch = encode_batch(
        rows, base_offset=base, codec=codec, producer_id=5, producer_epoch=2, base_sequence=77, leader_epoch=3
    )
    header = check(batch, 0, len(batch))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 2, 77)
    assert (header.leader_epoch, header.record_count) == (3, len(rows))
    assert header.max_timestamp == max(row.timestamp for row in rows)
    assert header.last_offset == base + rows[-1].offset
    assert list(decode_batch(batch)) == [row._replace(offset=base + row.offset) for row in rows]
    framed = b"xyz" + bytes(batch) + b"more"
    assert list(decode_batch(framed, 3)) == list(decode_batch(batch))


@given(number=st.integers(-(2**63), 2**63 - 1))
def test_varints_of_64_bits_round_trip_in_ten_bytes_at_most(number: int) -> None:
    out = bytearray()
    encode_varint(out, number)
    assert decode_varint(out, 0) == (number, len(out))
    assert len(out) <= 10


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
def test_a_number_beyond_64_bits_is_not_written(number: int) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        encode_varint(bytearray(), number)


@pytest.mark.parametrize(
    "data", [b"\x80" * 10 + b"\x00", b"\xff" * 9 + b"\x02", b"\xff" * 9 + b"\x7f", b"\x80" * 9 + b"\x02"]
)
def test_a_varint_beyond_64_bits_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptBatch):
        decode_varint(data, 0)


@pytest.mark.parametrize("codec", list(Codec))
def test_every_truncation_is_corrupt_and_nothing_else(codec: Codec) -> None:
    batch = bytes(
        encode_batch([Record(i, i, b"key", b"value" * 3, (("h", None),)) for i in range(4)], codec=codec)
    )
    for end in range(len(batch)):
        with pytest.raises(CorruptBatch):
            list(decode_batch(batch[:end]))
        # The same with a length that fits what is left, as a crafted batch would have it.
        if end >= HEADER_SIZE:
            cut = bytearray(batch[:end])
            write_header(cut, 0, read_header(cut)._replace(length=end - 12))
            with pytest.raises(CorruptBatch):
                list(decode_batch(cut))


@settings(max_examples=examples(300), deadline=None)
@given(
    payload=st.binary(max_size=120),
    count=st.integers(-3, 2**31 - 1),
    attributes=st.sampled_from([0, 0, 0, 1, 2, 3, 4, 5]),
)
def test_records_of_any_bytes_raise_nothing_but_corrupt_batch(
    payload: bytes, count: int, attributes: int
) -> None:
    batch = encode_batch([Record(0, 0, None, None)])[:HEADER_SIZE] + payload
    header = read_header(batch)._replace(length=len(batch) - 12, record_count=count, attributes=attributes)
    write_header(batch, 0, header)
    write_header(batch, 0, header._replace(crc=checksum(batch, 0, len(batch))))
    with contextlib.suppress(CorruptBatch):
        assert len(list(decode_batch(batch))) == count


@settings(max_examples=examples(300), deadline=None)
@given(flips=st.lists(st.tuples(st.integers(HEADER_SIZE, 400), st.integers(0, 7)), min_size=1, max_size=4))
def test_damaged_records_raise_nothing_but_corrupt_batch(flips: list[tuple[int, int]]) -> None:
    batch = encode_batch([Record(i, i, b"key", b"v" * 30, (("name", b"x"),)) for i in range(6)])
    for position, bit in flips:
        batch[HEADER_SIZE + position % (len(batch) - HEADER_SIZE)] ^= 1 << bit
    with contextlib.suppress(CorruptBatch):
        list(decode_batch(batch))


def test_bytes_after_the_last_record_are_corrupt() -> None:
    batch = encode_batch([Record(0, 0, None, b"v")]) + b"\x00"
    write_header(batch, 0, read_header(batch)._replace(length=len(batch) - 12))
    with pytest.raises(CorruptBatch, match="1 bytes follow"):
        list(decode_batch(batch))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_opening_a_batch_stops_at_the_limit(codec: Codec) -> None:
    batch = encode_batch([Record(0, 0, None, bytes(1_000_000))], codec=codec)
    with pytest.raises(TooLarge):
        list(decode_batch(batch, limit=100_000))


def test_a_header_name_of_any_bytes_comes_out_as_it_went_in() -> None:
    name = b"\xff\xfe".decode(errors="surrogateescape")
    batch = encode_batch([Record(0, 0, None, b"v", ((name, b"x"),))])
    assert b"\xff\xfe" in batch
    [record] = decode_batch(batch)
    assert record.headers == ((name, b"x"),)


def test_a_batch_holds_at_least_one_record() -> None:
    with pytest.raises(ValueError, match="at least one"):
        encode_batch([])
