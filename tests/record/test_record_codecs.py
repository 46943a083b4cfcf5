from __future__ import annotations

import contextlib
import gzip
import random
import tracemalloc

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from headwater.record.batch import CorruptBatch
from headwater.record.codecs import Codec, TooLarge, compress, decompress

COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
MB = 1024 * 1024


@settings(max_examples=examples(60), deadline=None)
@given(data=st.binary(max_size=100_000), codec=st.sampled_from(list(Codec)))
def test_what_is_compressed_comes_out_again(data: bytes, codec: Codec) -> None:
    assert decompress(codec, compress(codec, data), len(data) + 1) == data
    assert decompress(codec, memoryview(compress(codec, data)), len(data) + 1) == data


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_limit_that_fits_exactly_is_no_error_and_one_byte_less_is(codec: Codec) -> None:
    data = random.Random(1).randbytes(200_000)
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    with pytest.raises(TooLarge):
        decompress(codec, packed, len(data) - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_stops_at_the_limit_with_bounded_memory(codec: Codec) -> None:
    bomb = compress(codec, bytes(64 * MB))
    limit = 4 * MB
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            decompress(codec, bomb, limit)
        assert tracemalloc.get_traced_memory()[1] < 4 * limit
    finally:
        tracemalloc.stop()


def test_a_snappy_block_that_claims_gigabytes_is_refused_before_it_is_opened() -> None:
    claim = b"\xff\xff\xff\xff\x0f" + b"\x00" * 10
    with pytest.raises(TooLarge):
        decompress(Codec.SNAPPY, claim, MB)


def test_snappy_blocks_share_one_limit() -> None:
    packed = compress(Codec.SNAPPY, bytes(10 * 32 * 1024))
    with pytest.raises(TooLarge):
        decompress(Codec.SNAPPY, packed, 9 * 32 * 1024)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_every_truncation_is_corrupt_or_at_least_shorter(codec: Codec) -> None:
    data = random.Random(2).randbytes(300) * 3
    packed = compress(codec, data)
    for end in range(len(packed)):
        try:
            out = decompress(codec, packed[:end], MB)
        except CorruptBatch:
            continue
        # Snappy's stream has no end mark: a cut between its blocks shows only in what is missing.
        assert codec is Codec.SNAPPY
        assert len(out) < len(data)


@settings(max_examples=examples(300), deadline=None)
@given(codec=st.sampled_from(COMPRESSED), data=st.binary(max_size=200), flip=st.integers(0, 10_000))
def test_bad_bytes_raise_nothing_but_corrupt_batch(codec: Codec, data: bytes, flip: int) -> None:
    damaged = bytearray(compress(codec, data * 3))
    damaged[flip % len(damaged)] ^= 1 << flip % 8
    for candidate in (data, bytes(damaged)):
        with contextlib.suppress(CorruptBatch):
            assert len(decompress(codec, candidate, 10_000)) <= 10_000


@pytest.mark.parametrize("codec", COMPRESSED)
def test_an_unreadable_block_is_not_taken_for_a_large_one(codec: Codec) -> None:
    with pytest.raises(CorruptBatch) as caught:
        decompress(codec, b"\x01" * 100, MB)
    assert not isinstance(caught.value, TooLarge)


def test_gzip_streams_may_follow_one_another() -> None:
    packed = gzip.compress(b"one") + gzip.compress(b"two")
    assert decompress(Codec.GZIP, packed, 6) == b"onetwo"
    with pytest.raises(TooLarge):
        decompress(Codec.GZIP, packed, 5)
    with pytest.raises(CorruptBatch):
        decompress(Codec.GZIP, packed + b"tail", 100)


def test_snappy_is_read_with_and_without_the_java_framing() -> None:
    raw = bytes(cramjam.snappy.compress_raw(b"hello" * 100))
    assert decompress(Codec.SNAPPY, raw, 500) == b"hello" * 100


def test_there_is_no_fifth_codec() -> None:
    with pytest.raises(CorruptBatch, match="number 5"):
        Codec.of(5)
