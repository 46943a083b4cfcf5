"""A message as it was published: its address, and its content frames as they came.

The content is kept in the frames that carried it, header and body, with the publisher's channel number in
them. A consumer on a channel of that number gets the very same bytes; for another the frames are
renumbered, and cut anew where they are longer than it takes. In a queue's log the value of a record is the
address followed by these frames.

    address   exchange, routing key: a length byte and bytes each
    frame     type (1), channel (2), size (4), payload, 0xCE
    header    class 60 (2), weight 0 (2), body size (8), property flags and values
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any

from headwater.core.amqp import AmqpError, ReplyCode
from headwater.record.amqp.properties import Facts, Properties, facts

__all__ = ["Message", "decode_value", "encode_address", "known_facts", "pack_message"]

_FRAME = struct.Struct(">BHI")
_HEADER = struct.Struct(">BHIHHQ")
_HEADER_FIXED = 12
_HEADER_FRAME, _BODY_FRAME, _END = 2, 3, b"\xce"
_BASIC = 60
FRAME_OVERHEAD = 8
_PACKED_FRAME = 131072
PROPERTIES_AT = 7 + _HEADER_FIXED
"""Where the properties begin in a header frame."""

known_facts = lru_cache(maxsize=4096)(facts)
"""What matters to a broker of a message's properties; publishers tend to send the same ones again and again."""


class Message:
    """A message in one queue: what was published, and what has become of it there."""

    __slots__ = (
        "address",
        "consumer",
        "deliveries",
        "expires_ms",
        "facts",
        "frames",
        "lane",
        "offset",
        "position",
        "size",
    )

    def __init__(self, address: bytes, frames: bytes, facts: Facts, size: int) -> None:
        self.address = address
        self.frames = frames
        self.facts = facts
        self.size = size
        """How long the body is."""
        self.position = 0
        """Its place among the messages of its lane, for when it is given back."""
        self.offset = -1
        """Where it is in its lane's log, if it is there."""
        self.deliveries = 0
        """How often it was delivered and given back."""
        self.expires_ms: int | None = None
        self.lane: Any = None
        self.consumer: Any = None
        """Who has it now."""

    def copy(self) -> Message:
        """Return the same content as it goes into another queue."""
        return Message(self.address, self.frames, self.facts, self.size)

    @property
    def exchange(self) -> str:
        """The exchange that the message was published to."""
        return self.address[1 : 1 + self.address[0]].decode("utf-8", "surrogateescape")

    @property
    def routing_key(self) -> str:
        """The routing key that the message was published with."""
        return self.address[2 + self.address[0] :].decode("utf-8", "surrogateescape")

    @property
    def raw_properties(self) -> bytes:
        """The property flags and values, as they were sent."""
        return self.frames[PROPERTIES_AT : 7 + int.from_bytes(self.frames[3:7], "big")]

    def properties(self) -> Properties:
        """Return the properties, decoded."""
        return Properties.decode(self.raw_properties)

    def body(self) -> bytes:
        """Return the body, put together from its frames."""
        return body_of(self.frames)

    def frames_for(self, channel: int, frame_max: int) -> bytes:
        """Return the content frames for a channel, none of them longer than `frame_max`."""
        frames = self.frames
        if len(frames) <= frame_max and int.from_bytes(frames[1:3], "big") == channel:
            return frames
        return pack_frames(channel, self.raw_properties, self.body(), frame_max)

    def rewritten(self, address: bytes, properties: Properties) -> Message:
        """Return the message with another address and other properties."""
        return pack_message(address, properties, self.body())


def encode_address(exchange: str, routing_key: str) -> bytes:
    """Return an address; names of more than 255 bytes do not fit."""
    parts = [text.encode("utf-8", "surrogateescape") for text in (exchange, routing_key)]
    if max(map(len, parts)) > 255:
        raise AmqpError(
            ReplyCode.SYNTAX_ERROR, "the name of an exchange or a routing key is longer than 255 bytes"
        )
    return b"".join(bytes((len(part),)) + part for part in parts)


def pack_frames(channel: int, raw_properties: bytes, body: bytes, frame_max: int) -> bytes:
    """Return a header frame and the body frames after it."""
    size = _HEADER_FIXED + len(raw_properties)
    parts = [
        _HEADER.pack(_HEADER_FRAME, channel, size, _BASIC, 0, len(body)),
        raw_properties,
        _END,
    ]
    step = frame_max - FRAME_OVERHEAD
    for start in range(0, len(body), step):
        piece = body[start : start + step]
        parts += (_FRAME.pack(_BODY_FRAME, channel, len(piece)), piece, _END)
    return b"".join(parts)


def repacked(frames: bytes, frame_max: int) -> bytes:
    """Return content frames with the body in as few as go."""
    header_end = FRAME_OVERHEAD + int.from_bytes(frames[3:7], "big")
    channel = int.from_bytes(frames[1:3], "big")
    return pack_frames(channel, frames[PROPERTIES_AT : header_end - 1], body_of(frames), frame_max)


def body_of(frames: bytes) -> bytes:
    """Return the body that content frames carry."""
    position = FRAME_OVERHEAD + int.from_bytes(frames[3:7], "big")
    parts = []
    while position < len(frames):
        size = int.from_bytes(frames[position + 3 : position + 7], "big")
        parts.append(frames[position + 7 : position + 7 + size])
        position += size + FRAME_OVERHEAD
    return parts[0] if len(parts) == 1 else b"".join(parts)


def pack_message(address: bytes, properties: Properties, body: bytes, channel: int = 1) -> Message:
    """Return a message that nobody has published yet."""
    raw = properties.encode()
    return Message(address, pack_frames(channel, raw, body, _PACKED_FRAME), known_facts(raw), len(body))


def decode_value(value: bytes, addresses: dict[bytes, bytes] | None = None) -> Message:
    """Return the message in the value of a record of a queue's log; its address is one of `addresses`."""
    end = 1 + value[0]
    end += 1 + value[end]
    frames = value[end:]
    address = value[:end]
    if addresses is not None:
        address = addresses.setdefault(address, address)
    size = int.from_bytes(frames[3:7], "big")
    return Message(
        address, frames, known_facts(frames[PROPERTIES_AT : 7 + size]), int.from_bytes(frames[11:19], "big")
    )
