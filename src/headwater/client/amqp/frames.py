"""AMQP's frames, cut out of what arrives."""

from __future__ import annotations

import struct

from headwater.client.errors import BadAnswer
from headwater.wire.amqp.constants import FRAME_END, FRAME_HEADER_SIZE, FRAME_OVERHEAD

__all__ = ["Frame", "Frames"]

_HEADER = struct.Struct(">BHI")
_BEFORE_TUNE = 1024 * 1024

Frame = tuple[int, int, bytes]
"""Its type, its channel and its payload."""


class Frames:
    """Finds frames in a stream of bytes."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._rest = b""
        self.max_size = _BEFORE_TUNE
        """The longest frame to believe in; what the two sides agree on, once they have."""

    def feed(self, data: bytes) -> list[Frame]:
        """Take bytes, and return the frames that are whole by now."""
        data = self._rest + data
        found: list[Frame] = []
        position = 0
        while len(data) - position >= FRAME_OVERHEAD:
            if data.startswith(b"AMQP", position):
                raise BadAnswer(f"{self._where} speaks another version of AMQP than 0-9-1")
            kind, channel, size = _HEADER.unpack_from(data, position)
            if size > self.max_size:
                raise BadAnswer(f"{self._where} sends a frame of {size} bytes: is it an AMQP listener?")
            start = position + FRAME_HEADER_SIZE
            end = start + size
            if end >= len(data):
                break
            if data[end] != FRAME_END:
                raise BadAnswer(f"{self._where} sends a frame without its end: is it an AMQP listener?")
            found.append((kind, channel, data[start:end]))
            position = end + 1
        self._rest = data[position:]
        return found
