from __future__ import annotations

import json

import pytest
from log_helpers import NOW, rows

from headwater.core.errors import ApiError, ErrorCode
from headwater.log.producers import Producers
from headwater.record.batch import CONTROL, Header, read_header
from headwater.record.records import encode_batch


def header(
    sequence: int, count: int = 1, *, epoch: int = 0, producer: int = 1, attributes: int = 0
) -> Header:
    batch = encode_batch(
        rows(1), producer_id=producer, producer_epoch=epoch, base_sequence=sequence, attributes=attributes
    )
    return read_header(batch)._replace(last_offset_delta=count - 1, record_count=count)


def sent(producers: Producers, *batches: Header) -> None:
    offset = 0
    for batch in batches:
        assert producers.check(batch) is None
        producers.update(batch, offset, NOW, NOW)
        offset += batch.record_count


def test_the_last_five_batches_are_recognised_and_older_ones_are_out_of_order() -> None:
    producers = Producers()
    batches = [header(i * 3, 3) for i in range(7)]
    sent(producers, *batches)
    for i, batch in enumerate(batches):
        if i < 2:
            with pytest.raises(ApiError) as caught:
                producers.check(batch)
            assert caught.value.code is ErrorCode.out_of_order_sequence_number
        else:
            repeated = producers.check(batch)
            assert repeated is not None
            assert repeated.base_offset == i * 3


def test_a_gap_is_refused_and_so_is_another_length() -> None:
    producers = Producers()
    sent(producers, header(0, 3))
    for wrong in (header(4), header(2), header(0, 2)):
        with pytest.raises(ApiError):
            producers.check(wrong)
    assert producers.check(header(3)) is None


def test_sequences_wrap_around() -> None:
    producers = Producers()
    sent(producers, header(2**31 - 2, 5), header(3))
    repeated = producers.check(header(2**31 - 2, 5))
    assert repeated is not None
    assert (repeated.first_sequence, repeated.last_sequence) == (2**31 - 2, 2)


def test_an_older_epoch_is_fenced_and_a_newer_one_begins_at_zero() -> None:
    producers = Producers()
    sent(producers, header(0, epoch=3))
    with pytest.raises(ApiError) as caught:
        producers.check(header(1, epoch=2))
    assert caught.value.code is ErrorCode.invalid_producer_epoch
    with pytest.raises(ApiError) as caught:
        producers.check(header(1, epoch=4))
    assert caught.value.code is ErrorCode.out_of_order_sequence_number
    sent(producers, header(0, epoch=4))
    assert producers.check(header(1, epoch=4)) is None


def test_one_of_whom_nothing_is_known_may_begin_anywhere() -> None:
    assert Producers().check(header(77)) is None


def test_the_state_goes_through_json_whole_or_up_to_an_offset() -> None:
    producers = Producers()
    sent(producers, header(0, 2), header(2, 2), header(4, 2))
    again = Producers.from_json(json.loads(json.dumps(producers.to_json())))
    assert again.to_json() == producers.to_json()
    repeated = again.check(header(4, 2))
    assert repeated is not None
    assert repeated.base_offset == 4
    earlier = Producers.from_json(producers.to_json(before=4))
    assert earlier.check(header(2, 2)) is not None
    assert earlier.check(header(4, 2)) is None
    assert Producers().to_json() == producers.to_json(before=0) == []


def test_expiry_and_control_batches() -> None:
    producers = Producers()
    producers.replay(header(-1, attributes=CONTROL, producer=5), NOW)
    producers.replay(header(0, producer=6), NOW + 10)
    producers.replay(header(0, producer=-1), NOW)
    assert len(producers) == 2
    producers.expire(NOW + 5)
    assert len(producers) == 1
    assert producers.check(header(0, producer=6)) is not None
