from __future__ import annotations

import pytest

from headwater.core.errors import ErrorCode
from headwater.record.batch import (
    CONTROL,
    CRC_START,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    CorruptBatch,
    Header,
    InvalidBatch,
    batches,
    check,
    check_produced,
    checksum,
    place,
    read_header,
    stamp,
    write_header,
)
from headwater.record.records import Record, decode_batch, encode_batch

RECORDS = [Record(i, 1000 + i, b"k%d" % i, b"v" * i, (("h", b"x"),)) for i in range(5)]


def resealed(batch: bytearray, **changes: int) -> bytearray:
    """Return the batch with header fields changed and the checksum right again."""
    out = bytearray(batch)
    write_header(out, 0, read_header(out)._replace(**changes))
    write_header(out, 0, read_header(out)._replace(crc=checksum(out, 0, len(out))))
    return out


def test_check_returns_the_header_of_a_sound_batch_anywhere_in_a_buffer() -> None:
    batch = encode_batch(RECORDS, base_offset=7)
    buffer = b"before" + batch + b"after"
    header = check(buffer, 6, 6 + len(batch))
    assert (header.base_offset, header.last_offset, header.record_count) == (7, 11, 5)
    assert header.size == len(batch)


def test_check_refuses_every_truncation() -> None:
    batch = encode_batch(RECORDS)
    for end in range(len(batch)):
        with pytest.raises(InvalidBatch, match="no whole record batch"):
            check(batch, 0, end)


def test_check_drops_less_than_a_batch_after_the_batch() -> None:
    batch = encode_batch(RECORDS)
    for rest in (1, 17, 40, len(batch) - 1):
        assert check(batch + batch[:rest], 0, len(batch) + rest).size == len(batch)


def test_check_finds_a_flipped_bit_at_every_byte_the_checksum_covers() -> None:
    batch = encode_batch(RECORDS)
    for position in range(CRC_START - 4, len(batch)):
        batch[position] ^= 1 << position % 8
        with pytest.raises(CorruptBatch) as caught:
            check(batch, 0, len(batch))
        assert caught.value.code is ErrorCode.corrupt_message
        batch[position] ^= 1 << position % 8
    check(batch, 0, len(batch))


@pytest.mark.parametrize(
    ("length", "error"),
    [
        (-(2**31), CorruptBatch),
        (-1, CorruptBatch),
        (0, CorruptBatch),
        (48, CorruptBatch),
        (2**31 - 1, InvalidBatch),
    ],
)
def test_check_refuses_an_impossible_length(length: int, error: type[Exception]) -> None:
    batch = encode_batch(RECORDS)
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(error):
        check(batch, 0, len(batch))


@pytest.mark.parametrize(
    ("magic", "error"), [(0, InvalidBatch), (1, InvalidBatch), (3, CorruptBatch), (255, CorruptBatch)]
)
def test_check_refuses_another_message_format(magic: int, error: type[Exception]) -> None:
    batch = encode_batch(RECORDS)
    batch[16] = magic
    with pytest.raises(error, match=f"format {magic}"):
        check(batch, 0, len(batch))


def test_check_refuses_a_second_batch() -> None:
    two = encode_batch(RECORDS) + encode_batch(RECORDS)
    with pytest.raises(InvalidBatch, match="exactly one"):
        check(two, 0, len(two))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"record_count": 0}, "counts 0 records"),
        ({"record_count": -1}, "counts -1 records"),
        ({"record_count": 4}, "last offset delta is 4"),
        ({"last_offset_delta": -1}, "last offset delta is -1"),
        ({"attributes": CONTROL}, "control records"),
        ({"attributes": 5}, "codec number 5"),
        ({"attributes": 7}, "codec number 7"),
        ({"producer_id": 9, "base_sequence": -1}, "producer 9 sent no sequence"),
    ],
)
def test_a_producers_batch_must_not_contradict_itself(changes: dict[str, int], words: str) -> None:
    batch = resealed(encode_batch(RECORDS), **changes)
    with pytest.raises(InvalidBatch, match=words) as caught:
        check_produced(check(batch, 0, len(batch)))
    assert caught.value.code is ErrorCode.invalid_record


def test_a_sound_batch_is_a_producers_to_send() -> None:
    check_produced(read_header(encode_batch(RECORDS)))
    check_produced(read_header(encode_batch(RECORDS, producer_id=1, producer_epoch=0, base_sequence=0)))


def test_place_changes_the_offset_and_epoch_and_leaves_the_checksum_right() -> None:
    batch = encode_batch(RECORDS)
    before = bytes(batch)
    place(batch, 0, 2**40 + 3, 6)
    header = check(batch, 0, len(batch))
    assert (header.base_offset, header.leader_epoch) == (2**40 + 3, 6)
    assert batch[8:12] == before[8:12]
    assert batch[16:] == before[16:]
    assert [r.offset for r in decode_batch(batch)] == [2**40 + 3 + i for i in range(5)]


def test_stamp_gives_every_record_the_brokers_time() -> None:
    batch = encode_batch(RECORDS, base_offset=3)
    header = stamp(batch, 0, len(batch), read_header(batch), 123_456)
    assert check(batch, 0, len(batch)) == header
    assert header.attributes & LOG_APPEND_TIME
    assert header.max_timestamp == 123_456
    assert [(r.offset, r.timestamp) for r in decode_batch(batch)] == [(3 + i, 123_456) for i in range(5)]
    assert [r._replace(offset=r.offset - 3, timestamp=0) for r in decode_batch(batch)] == [
        r._replace(timestamp=0) for r in RECORDS
    ]


def test_batches_walks_whole_batches_and_stops_at_one_that_is_cut_off() -> None:
    one, two = encode_batch(RECORDS, base_offset=0), encode_batch(RECORDS, base_offset=5)
    both = one + two
    for end in range(len(one), len(both)):
        assert [(p, h.base_offset) for p, h in batches(both, 0, end)] == [(0, 0)]
    assert [(p, h.base_offset) for p, h in batches(both)] == [(0, 0), (len(one), 5)]
    assert list(batches(both, 0, HEADER_SIZE - 1)) == []


def test_batches_refuses_what_is_no_batch() -> None:
    with pytest.raises(CorruptBatch):
        list(batches(bytes(100)))


def test_a_header_writes_and_reads_its_extremes() -> None:
    header = Header(2**63 - 1, 2**31 - 1, -1, 2, 2**32 - 1, 0x3F, 2**31 - 1, -1, 2**63 - 1, -1, -1, -1, 7)
    buffer = bytearray(HEADER_SIZE + 2)
    write_header(buffer, 1, header)
    assert read_header(buffer, 1) == header
    assert header.is_control
    assert header.is_transactional
