"""Frames cut out of a stream, and confirms counted: against the plain way to do it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands

from headwater.client.amqp.confirms import Confirms
from headwater.client.amqp.frames import Frames
from headwater.client.amqp.incoming import Incoming
from headwater.client.amqp.messages import Delivery
from headwater.client.errors import BadAnswer
from headwater.record.amqp.message import pack_frames
from headwater.record.amqp.properties import NO_PROPERTIES
from headwater.wire.amqp.constants import BODY, FRAME_END, METHOD
from headwater.wire.amqp.methods import encode_method, make

_FRAMES = st.lists(st.tuples(st.sampled_from([1, 2, 3, 8]), st.integers(0, 2047), st.binary(max_size=30)))


def _encode(kind: int, channel: int, payload: bytes) -> bytes:
    head = bytes([kind]) + channel.to_bytes(2, "big") + len(payload).to_bytes(4, "big")
    return head + payload + bytes([FRAME_END])


@given(_FRAMES, st.lists(st.integers(1, 40)))
def test_frames_are_found_however_they_are_cut(frames: list[tuple[int, int, bytes]], cuts: list[int]) -> None:
    data = b"".join(_encode(*frame) for frame in frames)
    reader = Frames("here")
    found = []
    for size in [*cuts, len(data)]:
        found += reader.feed(data[:size])
        data = data[size:]
    assert found == frames


@pytest.mark.parametrize("frame_max", [4096, 131072])
@pytest.mark.parametrize("size", [0, 1, 4088, 4089, 100_000])
def test_a_message_is_put_together(size: int, frame_max: int) -> None:
    body = bytes(index % 251 for index in range(size))
    method = encode_method(1, make(commands.Basic.GetOk, delivery_tag=7, routing_key="k"))
    incoming = Incoming()
    arrived = None
    for kind, _, payload in Frames("here").feed(method + pack_frames(1, NO_PROPERTIES, body, frame_max)):
        assert arrived is None
        arrived = incoming.feed(kind, payload)
    assert arrived is not None
    message = arrived[1]
    assert isinstance(message, Delivery)
    assert (message.tag, message.body, message.routing_key) == (7, body, "k")


def test_a_body_without_a_message_and_one_that_is_too_long() -> None:
    with pytest.raises(BadAnswer, match="a frame of type 3 where 1 is due"):
        Incoming().feed(BODY, b"x")
    method = encode_method(1, make(commands.Basic.Deliver, consumer_tag="c", delivery_tag=1))[7:-1]
    header = pack_frames(1, NO_PROPERTIES, b"xy", 4096)[7:21]
    incoming = Incoming()
    assert incoming.feed(METHOD, method) is None
    assert incoming.feed(2, header) is None
    with pytest.raises(BadAnswer, match="longer than it announced"):
        incoming.feed(BODY, b"xyz")


_ANSWERS = st.lists(st.tuples(st.integers(0, 12), st.booleans(), st.booleans()))


@given(_ANSWERS)
def test_confirms_are_counted_like_on_paper(answers: list[tuple[int, bool, bool]]) -> None:
    confirms = Confirms()
    assert [confirms.published() for _ in range(10)] == list(range(1, 11))
    waiting, refused = set(range(1, 11)), set()
    for tag, multiple, taken in answers:
        covered = {one for one in waiting if one == tag or (multiple and (one <= tag or tag == 0))}
        waiting -= covered
        if not taken:
            refused |= covered
        confirms.settled(tag, multiple=multiple, taken=taken)
        assert (set(confirms.waiting), confirms.refused) == (waiting, refused)
