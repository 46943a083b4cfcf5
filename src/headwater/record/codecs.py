"""The compression codecs of record batches, opened with a bound on what comes out.

The broker passes compressed batches through untouched; it opens one only to find a record in it.
A small batch can claim to hold terabytes, so every way out of here takes a limit.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from enum import Enum
from typing import Any

import cramjam

from headwater.record.batch import Buffer, CorruptBatch

# snappy-java's stream: a magic of eight bytes, two version numbers, then length-prefixed raw blocks.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 * 1024
_BLOCK_LENGTH = struct.Struct(">i")
_LZ4_LEVEL = 1
"""The fast level, Kafka's own. The library's default is its high compression: eight times as long, for two
thirds of the bytes."""
_FIRST_GUESS = 64 * 1024
_OUTPUT_FULL = "failed to write whole buffer"
"""What cramjam says when the output buffer is too small; it has no error class for it."""


class Codec(Enum):
    """A codec, by its number in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def of(cls, number: int) -> Codec:
        """Return the codec of this number, or raise `CorruptBatch`."""
        try:
            return cls(number)
        except ValueError:
            raise CorruptBatch(f"there is no compression codec number {number}") from None


class TooLarge(CorruptBatch):
    """Compressed bytes that would grow beyond the limit."""


def compress(codec: Codec, data: bytes) -> bytes:
    """Return `data` as `codec` writes it."""
    match codec:
        case Codec.GZIP:
            gzip = zlib.compressobj(wbits=31)
            return gzip.compress(data) + gzip.flush()
        case Codec.SNAPPY:
            return _snappy_compress(data)
        case Codec.LZ4:
            return bytes(cramjam.lz4.compress(data, level=_LZ4_LEVEL))
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data))
        case Codec.NONE:
            return data


def decompress(codec: Codec, data: Buffer, limit: int) -> bytes:
    """Return what `data` holds; raise `TooLarge` past `limit` bytes, `CorruptBatch` where it does not read."""
    match codec:
        case Codec.GZIP:
            return _gunzip(data, limit)
        case Codec.SNAPPY:
            return _snappy_decompress(data, limit)
        case Codec.LZ4:
            return _grow(cramjam.lz4.decompress_into, data, limit)
        case Codec.ZSTD:
            return _grow(cramjam.zstd.decompress_into, data, limit)
        case Codec.NONE:
            return bytes(data)


def _gunzip(data: Buffer, limit: int) -> bytes:
    out = bytearray()
    rest: Buffer = data
    while True:  # gzip streams may follow one another, and Java's reader takes them as one
        gzip = zlib.decompressobj(wbits=31)
        try:
            # One byte more than allowed tells what fits exactly from what does not fit.
            out += gzip.decompress(rest, limit + 1 - len(out))
        except zlib.error as error:
            raise CorruptBatch(f"gzip data does not read: {error}") from None
        if len(out) > limit:
            raise TooLarge(f"gzip data grows beyond {limit} bytes")
        if not gzip.eof:
            raise CorruptBatch("gzip data ends early")
        if not gzip.unused_data:
            return bytes(out)
        rest = gzip.unused_data


def _grow(decompress_into: Callable[[Any, Any], int], data: Buffer, limit: int) -> bytes:
    # The libraries trust no stated size, and neither do we: the output buffer is the bound.
    capacity = min(limit, max(_FIRST_GUESS, 4 * len(data)))
    while True:
        out = bytearray(capacity)
        try:
            size = decompress_into(data, out)
        except cramjam.DecompressionError as error:
            if _OUTPUT_FULL not in str(error):
                raise CorruptBatch(f"compressed data does not read: {error}") from None
            if capacity >= limit:
                raise TooLarge(f"compressed data grows beyond {limit} bytes") from None
            capacity = min(limit, capacity * 4)
        else:
            return bytes(memoryview(out)[:size])


def _snappy_compress(data: bytes) -> bytes:
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
        out += _BLOCK_LENGTH.pack(len(block))
        out += block
    return bytes(out)


def _snappy_decompress(data: Buffer, limit: int) -> bytes:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _snappy_block(data, limit)
    out = bytearray()
    position = len(_XERIAL_HEADER)
    while position < len(data):
        if position + 4 > len(data):
            raise CorruptBatch("snappy data ends early")
        (length,) = _BLOCK_LENGTH.unpack_from(data, position)
        position += 4
        if not 0 < length <= len(data) - position:
            raise CorruptBatch(f"a snappy block of {length} bytes does not fit")
        out += _snappy_block(data[position : position + length], limit - len(out))
        position += length
    return bytes(out)


def _snappy_block(data: Buffer, limit: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size > limit:
            raise TooLarge(f"snappy data grows beyond {limit} bytes")
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"snappy data does not read: {error}") from None
