"""The parser finds the same frames however they are cut into chunks, and ends a connection that sends others."""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.amqp import AmqpError, ReplyCode
from headwater.record.amqp.message import encode_address, pack_frames
from headwater.wire.amqp.constants import HEARTBEAT_FRAME
from headwater.wire.amqp.parser import Parser

FRAME_MAX = 4096
MAX_BODY = 50_000


def frame(kind: int, channel: int, payload: bytes, end: int = 0xCE) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + bytes((end,))


def publish(channel: int, exchange: str = "", key: str = "q") -> bytes:
    return frame(1, channel, b"\x00\x3c\x00\x28\x00\x00" + encode_address(exchange, key) + b"\x00")


def ack(channel: int, tag: int, multiple: int = 0) -> bytes:
    return frame(1, channel, b"\x00\x3c\x00\x50" + struct.pack(">QB", tag, multiple))


def header(channel: int, size: int, properties: bytes = b"\x00\x00", class_id: int = 60) -> bytes:
    return frame(2, channel, struct.pack(">HHQ", class_id, 0, size) + properties)


@dataclass
class Recorder:
    """A receiver that writes down what it is told."""

    events: list[tuple[object, ...]] = field(default_factory=list)
    closing: set[int] = field(default_factory=set)

    def publish(self, method: bytes, contents: list[bytes], header_size: int) -> None:
        self.events += [("publish", method, content, header_size) for content in contents]

    def acknowledge(self, channel: int, tag: int, multiple: int) -> None:
        self.events.append(("ack", channel, tag, multiple))

    def method(self, channel: int, payload: bytes) -> None:
        self.events.append(("method", channel, payload))

    def refuse(self, channel: int, error: AmqpError) -> None:
        self.closing.add(channel)
        self.events.append(("refuse", channel, error.code))

    def closes(self, channel: int) -> bool:
        return channel in self.closing


def parsed(*chunks: bytes) -> list[tuple[object, ...]]:
    recorder, parser = Recorder(), Parser(FRAME_MAX, MAX_BODY)
    for chunk in chunks:
        parser.feed(chunk, recorder)
    assert parser.buffered == 0
    return recorder.events


CHANNELS = st.integers(1, 3)
BODIES = st.binary(max_size=200) | st.integers(0, 20_000).map(bytes)
PROPERTIES = st.sampled_from([b"\x00\x00", b"\x10\x00\x02"])


@st.composite
def sent(draw: st.DrawFn) -> tuple[bytes, tuple[object, ...] | None]:
    channel = draw(CHANNELS)
    match draw(st.sampled_from(["publish", "publish", "publish", "ack", "method", "heartbeat"])):
        case "publish":
            method = publish(channel, draw(st.sampled_from(["", "e"])), "k")
            raw = draw(PROPERTIES)
            content = pack_frames(channel, raw, draw(BODIES), FRAME_MAX)
            return method + content, ("publish", method, content, 12 + len(raw))
        case "ack":
            tag, multiple = draw(st.integers(0, 2**64 - 1)), draw(st.integers(0, 1))
            return ack(channel, tag, multiple), ("ack", channel, tag, multiple)
        case "method":
            payload = b"\x00\x14\x00\x0a" + draw(st.binary(max_size=40))
            return frame(1, channel, payload), ("method", channel, payload)
        case _:
            return HEARTBEAT_FRAME, None


@given(st.lists(sent(), max_size=12), st.data())
def test_chunks_do_not_matter(
    frames: list[tuple[bytes, tuple[object, ...] | None]], data: st.DataObject
) -> None:
    stream = b"".join(each for each, _ in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    edges = [0, *cuts, len(stream)]
    chunks = [stream[a:b] for a, b in pairwise(edges)]
    assert parsed(*chunks) == [event for _, event in frames if event is not None]


@given(st.binary(max_size=300), st.integers(0, 3))
def test_whatever_comes_nothing_but_an_amqp_error_comes_of_it(junk: bytes, start: int) -> None:
    beginnings = [b"", publish(1), publish(1) + header(1, 10), ack(1, 1)]
    with suppress(AmqpError):
        Parser(FRAME_MAX, MAX_BODY).feed(beginnings[start] + junk, Recorder())


def test_messages_of_several_channels_may_interleave() -> None:
    one, two = publish(1), publish(2)
    first, second = header(1, 3), header(2, 3)
    body_one, body_two = frame(3, 1, b"abc"), frame(3, 2, b"xyz")
    assert parsed(one + two + second + first + body_two + body_one) == [
        ("publish", two, second + body_two, 14),
        ("publish", one, first + body_one, 14),
    ]


def test_nothing_is_found_while_paused() -> None:
    recorder, parser = Recorder(), Parser(FRAME_MAX, MAX_BODY)
    parser.paused = True
    parser.feed(ack(1, 1)[:5], recorder)
    parser.feed(ack(1, 1)[5:], recorder)
    assert recorder.events == []
    parser.paused = False
    parser.feed(b"", recorder)
    assert recorder.events == [("ack", 1, 1, 0)]


@pytest.mark.parametrize(
    ("stream", "code"),
    [
        (frame(1, 1, b"\x00\x14\x00\x0a", end=0xCD), ReplyCode.FRAME_ERROR),
        (struct.pack(">BHI", 1, 1, FRAME_MAX + 1) + b"x", ReplyCode.FRAME_ERROR),
        (struct.pack(">BHI", 1, 1, 2**32 - 1) + b"x", ReplyCode.FRAME_ERROR),
        (frame(4, 1, b""), ReplyCode.FRAME_ERROR),
        (frame(8, 1, b""), ReplyCode.FRAME_ERROR),
        (header(1, 1), ReplyCode.UNEXPECTED_FRAME),
        (frame(3, 1, b"x"), ReplyCode.UNEXPECTED_FRAME),
        (publish(1) + publish(1), ReplyCode.UNEXPECTED_FRAME),
        (publish(1) + frame(3, 1, b"x"), ReplyCode.UNEXPECTED_FRAME),
        (publish(1) + header(1, 5) + header(1, 5), ReplyCode.UNEXPECTED_FRAME),
        (publish(1) + header(1, 5, class_id=50), ReplyCode.UNEXPECTED_FRAME),
        (publish(1) + header(1, 2) + frame(3, 1, b"abc"), ReplyCode.FRAME_ERROR),
        (publish(1) + frame(2, 1, b"\x00\x3c\x00\x00"), ReplyCode.SYNTAX_ERROR),
    ],
)
def test_frames_that_end_the_connection(stream: bytes, code: ReplyCode) -> None:
    with pytest.raises(AmqpError) as caught:
        parsed(stream)
    assert caught.value.code is code


def test_what_came_before_a_bad_frame_is_taken() -> None:
    recorder = Recorder()
    message = header(1, 3) + frame(3, 1, b"abc")
    with pytest.raises(AmqpError):
        Parser(FRAME_MAX, MAX_BODY).feed((publish(1) + message) * 2 + frame(8, 1, b""), recorder)
    assert recorder.events == [("publish", publish(1), message, 14)] * 2


def test_a_body_that_is_too_long_closes_its_channel_alone() -> None:
    recorder, parser = Recorder(), Parser(FRAME_MAX, MAX_BODY)
    parser.feed(publish(1) + header(1, MAX_BODY + 1) + frame(3, 1, b"x") + ack(2, 7), recorder)
    assert recorder.events == [("refuse", 1, ReplyCode.PRECONDITION_FAILED), ("ack", 2, 7, 0)]
