"""A transaction that MySQL has compressed into one event: its events again, one after the other.

The body of the event is a list of fields, each a type, a length and a value, up to a zero, and then the events without
checksums, as one stream of zstd. The stream is read as it goes, so that what comes out of it need not fit into memory.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from headwater.capture.source import CaptureError

__all__ = ["Payload", "length", "unpacked"]

_HEADER_BYTES = 19
_END, _SIZE, _COMPRESSION = 0, 1, 2
_ZSTD, _NONE = 0, 255


class Payload(NamedTuple):
    """The events of a transaction, compressed."""

    compression: int
    data: memoryview
    """Large, and therefore not copied."""
    begin: int
    end: int

    @classmethod
    def parse(cls, data: bytes, begin: int, end: int) -> Payload:
        """Read an event, whose checksum is off."""
        compression, size, at = _NONE, 0, _HEADER_BYTES
        while True:
            field, at = length(data, at)
            if field == _END:
                break
            width, at = length(data, at)
            if field == _SIZE:
                size = length(data, at)[0]
            elif field == _COMPRESSION:
                compression = length(data, at)[0]
            at += width
        return cls(compression, memoryview(data)[at : at + size], begin, end)


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def length(data: bytes, at: int) -> tuple[int, int]:
    """Read MySQL's length-encoded integer, and return where it ends too."""
    first = data[at]
    if first < 251:
        return first, at + 1
    size = {252: 2, 253: 3, 254: 8}[first]
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


def unpacked(payload: Payload) -> Iterator[bytes]:
    """Yield the events, each with its header and without a checksum."""
    stream = _opened(payload)
    while header := _read(stream, _HEADER_BYTES):
        size = int.from_bytes(header[9:13], "little")
        yield header + _read(stream, size - _HEADER_BYTES)


def _opened(payload: Payload) -> _Readable:
    if payload.compression == _NONE:
        return io.BytesIO(payload.data)
    if payload.compression != _ZSTD:
        raise CaptureError(
            f"the binary log has transactions that are compressed in a way ({payload.compression}) which is not known:"
            " set binlog_transaction_compression to OFF"
        )
    try:
        import zstandard
    except ModuleNotFoundError as error:
        raise CaptureError(
            "the binary log has compressed transactions, which need zstandard: pip install 'headwater[capture]'"
        ) from error
    return zstandard.ZstdDecompressor().stream_reader(payload.data, read_across_frames=True)


def _read(stream: _Readable, size: int) -> bytes:
    """Return so many bytes, or none at the end."""
    chunks: list[bytes] = []
    left = size
    while left:
        chunk = stream.read(left)
        if not chunk:
            if chunks or size != _HEADER_BYTES:
                raise CaptureError(
                    "a compressed transaction of the binary log ends too early: look after the server's disk"
                )
            return b""
        chunks.append(chunk)
        left -= len(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)
