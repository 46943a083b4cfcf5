"""Frames that no client sends: what they cost their sender, and nobody else."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pamqp import commands
from pamqp.base import Frame

from .brokers import Broker
from .raw import BODY, HEADER, HEARTBEAT, METHOD, Closed, Raw, body, header, method, publish, raw_frame

pytestmark = pytest.mark.real

PUBLISH = method(commands.Basic.Publish(exchange="", routing_key="nowhere"), 1)


def nested(depth: int) -> bytes:
    """Write a table that holds a table that holds a table."""
    table = struct.pack(">I", 0)
    for _level in range(depth):
        content = b"\x01aF" + table
        table = struct.pack(">I", len(content)) + content
    return table


def declare_with(arguments: bytes, name: str = "") -> bytes:
    """Write queue.declare of an exclusive queue, with these bytes for its arguments."""
    queue = bytes([len(name)]) + name.encode()
    return raw_frame(METHOD, 1, struct.pack(">HHH", 50, 10, 0) + queue + b"\x04" + arguments)


@pytest.fixture
def raw(broker: Broker) -> Iterator[Raw]:
    """An open connection with channel 1."""
    with Raw(broker) as made:
        yield made.open().channel()


@pytest.fixture
def bystander(broker: Broker) -> Iterator[Raw]:
    """Another connection, which must not notice."""
    with Raw(broker) as made:
        made.open().channel()
        yield made
        assert made.call(commands.Queue.Declare(exclusive=True), commands.Queue.DeclareOk, 1).queue


@pytest.mark.parametrize(
    ("attack", "code", "text"),
    [
        pytest.param(header(5), 505, "UNEXPECTED_FRAME - ", id="header without publish"),
        pytest.param(body(b"x"), 505, "UNEXPECTED_FRAME - ", id="body without header"),
        pytest.param(PUBLISH + body(b"x"), 505, "UNEXPECTED_FRAME - ", id="body in place of a header"),
        pytest.param(
            PUBLISH + method(commands.Basic.Qos(), 1),
            505,
            "UNEXPECTED_FRAME - ",
            id="method in place of a header",
        ),
        pytest.param(
            PUBLISH + header(5) + method(commands.Basic.Qos(), 1),
            505,
            "UNEXPECTED_FRAME - ",
            id="method in place of a body",
        ),
        pytest.param(
            PUBLISH + header(5) + header(5), 505, "UNEXPECTED_FRAME - ", id="header in place of a body"
        ),
        pytest.param(
            PUBLISH + header(5, class_id=50), 505, "UNEXPECTED_FRAME - ", id="header of another class"
        ),
        pytest.param(
            raw_frame(METHOD, 1, b"\0\x3c\0\x14\0\0", end=b"\0"),
            501,
            "FRAME_ERROR - ",
            id="wrong end of a frame",
        ),
        pytest.param(
            raw_frame(BODY, 1, b"x" * 200_000), 501, "FRAME_ERROR - ", id="frame larger than agreed on"
        ),
        pytest.param(raw_frame(METHOD, 1, b"", size=2**32 - 1), 501, "FRAME_ERROR - ", id="four gigabytes"),
        pytest.param(raw_frame(9, 1, b"x"), 501, "FRAME_ERROR - ", id="unknown kind of frame"),
        pytest.param(raw_frame(METHOD, 1, b"\0\x3c"), 501, "FRAME_ERROR - ", id="half a method"),
        pytest.param(raw_frame(METHOD, 1, b"\0\x32\0\x0a\0\0\x0fshort"), 501, "FRAME_ERROR - ", id="cut off"),
        pytest.param(method(commands.Basic.Qos(), 0), 504, "CHANNEL_ERROR - ", id="channel's method on 0"),
        pytest.param(method(commands.Channel.Open(), 0), 504, "CHANNEL_ERROR - ", id="channel 0 opened"),
        pytest.param(header(5, 0), 505, "UNEXPECTED_FRAME - ", id="header on channel 0"),
        pytest.param(body(b"x", 0), 505, "UNEXPECTED_FRAME - ", id="body on channel 0"),
        pytest.param(method(commands.Basic.Qos(), 2), 504, "CHANNEL_ERROR - ", id="channel not open"),
        pytest.param(publish("q", b"m", 2), 504, "CHANNEL_ERROR - ", id="publish on a channel not open"),
        pytest.param(method(commands.Channel.Open(), 1), 504, "CHANNEL_ERROR - ", id="channel opened twice"),
        pytest.param(
            method(commands.Connection.Open(), 1), 503, "COMMAND_INVALID - ", id="connection's on 1"
        ),
        pytest.param(method(commands.Connection.Open()), 504, "CHANNEL_ERROR - ", id="opened twice"),
        pytest.param(method(commands.Connection.TuneOk(0, 0, 0)), 504, "CHANNEL_ERROR - ", id="tuned twice"),
        pytest.param(
            declare_with(b"\0\0\xff\xff\x01a"), 501, "FRAME_ERROR - ", id="table longer than its frame"
        ),
        pytest.param(
            method(commands.Basic.ConsumeOk("t"), 1), 503, "COMMAND_INVALID - ", id="server's own method"
        ),
    ],
)
def test_the_connection_is_closed_with_a_reason(
    raw: Raw, bystander: Raw, attack: bytes, code: int, text: str
) -> None:
    raw.send(attack)
    closing = raw.expect(commands.Connection.Close)
    assert closing.reply_code == code, closing.reply_text
    assert closing.reply_text.startswith(text)
    raw.send(method(commands.Connection.CloseOk()))
    with pytest.raises(Closed):
        raw.receive()


@pytest.mark.parametrize(
    ("attack", "code"),
    [
        pytest.param(raw_frame(METHOD, 1, b"\x03\xe7\0\x0a"), (503, 540), id="unknown class"),
        pytest.param(raw_frame(METHOD, 1, b"\0\x3c\x03\xe7"), (503, 540), id="unknown method"),
        pytest.param(declare_with(b"\0\0\0\x03\x01aZ"), (501, 502), id="value of an unknown type"),
    ],
)
def test_what_rabbitmq_has_no_answer_to_ends_the_connection(
    broker: Broker, raw: Raw, bystander: Raw, attack: bytes, code: tuple[int, ...]
) -> None:
    """RabbitMQ's process for the connection dies of it, without a word."""
    raw.send(attack)
    if broker.is_headwater:
        assert raw.expect(commands.Connection.Close).reply_code in code
        raw.send(method(commands.Connection.CloseOk()))
    with pytest.raises(Closed):
        raw.receive()


def test_a_body_longer_than_announced_is_refused(raw: Raw, bystander: Raw) -> None:
    """RabbitMQ waits for an end of the body that never comes, and finds the next method out of place."""
    name = raw.call(commands.Queue.Declare(exclusive=True), commands.Queue.DeclareOk, 1).queue
    asked = method(commands.Basic.Publish(exchange="", routing_key=name), 1)
    raw.send(asked, header(3), body(b"four"), method(commands.Basic.Qos(), 1))
    closing = raw.expect(commands.Connection.Close)
    assert closing.reply_code in (501, 505), closing.reply_text


def test_a_body_in_many_small_frames_is_one_message(raw: Raw) -> None:
    name = raw.call(commands.Queue.Declare(exclusive=True), commands.Queue.DeclareOk, 1).queue
    asked = method(commands.Basic.Publish(exchange="", routing_key=name), 1)
    raw.send(asked, header(1_000), *(body(b"x") for _each in range(400)), body(b""), body(b"y" * 600))
    raw.call(commands.Basic.Get(queue=name, no_ack=True), commands.Basic.GetOk, 1)
    _channel, head = raw.receive()
    assert head.body_size == 1_000
    _channel, content = raw.receive()
    assert content.value == b"x" * 400 + b"y" * 600


def test_channels_may_interleave_their_frames(raw: Raw) -> None:
    raw.channel(2)
    name = raw.call(commands.Queue.Declare(exclusive=True), commands.Queue.DeclareOk, 1).queue
    first, second = publish(name, b"first", 1), publish(name, b"second", 2)
    pieces = [each for pair in zip(_frames(first), _frames(second), strict=True) for each in pair]
    raw.send(*pieces)
    raw.call(commands.Basic.Qos(), commands.Basic.QosOk, 1)
    raw.call(commands.Basic.Qos(), commands.Basic.QosOk, 2)
    assert raw.call(commands.Queue.Purge(queue=name), commands.Queue.PurgeOk, 1).message_count == 2


def _frames(data: bytes) -> list[bytes]:
    found = []
    while data:
        size = 8 + int.from_bytes(data[3:7], "big")
        found.append(data[:size])
        data = data[size:]
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_frames_may_come_in_pieces(raw: Raw, size: int) -> None:
    data = method(commands.Queue.Declare(exclusive=True), 1) + publish("nowhere", b"body")
    data += method(commands.Basic.Qos(), 1)
    for start in range(0, len(data), size):
        raw.send(data[start : start + size])
    raw.expect(commands.Queue.DeclareOk, 1)
    raw.expect(commands.Basic.QosOk, 1)


def test_heartbeats_of_a_client_that_agreed_on_none_are_taken(raw: Raw) -> None:
    raw.send(raw_frame(HEARTBEAT, 0, b"") * 3)
    raw.call(commands.Basic.Qos(), commands.Basic.QosOk, 1)


@pytest.mark.parametrize("depth", [5, 20])
def test_nested_tables_are_read(raw: Raw, depth: int) -> None:
    raw.send(declare_with(nested(depth)))
    raw.expect(commands.Queue.DeclareOk, 1)


def test_tables_nested_without_end_harm_nobody(raw: Raw, bystander: Raw) -> None:
    """RabbitMQ reads them all; we read some and refuse the rest. Either way the broker lives on."""
    raw.send(declare_with(nested(10_000)))
    _channel, answer = raw.receive()
    assert isinstance(answer, commands.Queue.DeclareOk | commands.Connection.Close)


def test_headers_keep_their_types_where_the_broker_adds_to_them(raw: Raw, name: str) -> None:
    """Clients in Java, Go and Rust tell an int from a long."""
    fields = (
        b"\x02i8b\xfe", b"\x02u8B\xc8", b"\x03i16s\xff\xfe", b"\x03u16u\xea\x60", b"\x03i32I\0\0\0\x01",
        b"\x03u32i\0\0\0\x01", b"\x03i64l" + bytes(7) + b"\x01", b"\x01ff\x3f\xc0\0\0",
        b"\x01dd\x3f\xf8" + bytes(6), b"\x04textS\0\0\0\x02\xff\xfe", b"\x05bytesx\0\0\0\x02hi",
    )  # fmt: skip
    table = b"".join(fields)
    count = b"l" + bytes(7)
    declared: dict[str, Any] = {
        "x-queue-type": "quorum",
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": name,
    }
    first = f"{name}-first"
    for queue, arguments in ((first, declared), (name, {})):
        asked = commands.Queue.Declare(queue=queue, durable=True, arguments=arguments)
        raw.call(asked, commands.Queue.DeclareOk, 1)
    raw.send(
        method(commands.Basic.Publish(exchange="", routing_key=first), 1),
        header(0, properties=b"\x20\x00" + struct.pack(">I", len(table)) + table),
    )
    counted = got(raw, first)
    assert all(field in counted for field in (*fields, b"x-delivery-count" + count + b"\0"))
    raw.send(method(commands.Basic.Reject(delivery_tag=1, requeue=False), 1))
    letter = got(raw, name)
    assert all(field in letter for field in (*fields, b"\x05count" + count + b"\x01"))
    for queue in (first, name):
        raw.call(commands.Queue.Delete(queue=queue), commands.Queue.DeleteOk, 1)


def got(raw: Raw, queue: str) -> bytes:
    """Get the message that comes to a queue, and return its header."""
    while True:
        raw.send(method(commands.Basic.Get(queue=queue), 1))
        if isinstance(raw.receive()[1], commands.Basic.GetOk):
            return raw.frame()
        time.sleep(0.02)


def test_a_line_end_is_no_part_of_a_name(raw: Raw, name: str) -> None:
    """As in what a script reads from a file; pika would wait for an answer with the line end for ever."""
    raw.send(declare_with(bytes(4), f"{name}\r\n"))
    assert raw.expect(commands.Queue.DeclareOk, 1).queue == name


def test_a_header_of_many_properties_is_read(raw: Raw, bystander: Raw) -> None:
    """The flags say that more flags follow, for ever."""
    raw.send(PUBLISH, raw_frame(HEADER, 1, struct.pack(">HHQ", 60, 0, 0) + b"\xff\xff" * 1_000))
    _channel, answer = raw.receive()
    assert isinstance(answer, commands.Connection.Close)


def test_what_comes_on_a_closing_channel_is_passed_over(raw: Raw) -> None:
    raw.send(
        method(commands.Queue.Declare(queue="absent", passive=True), 1),
        publish("nowhere", b"m"),
        method(commands.Basic.Qos(), 1),
    )
    closing = raw.expect(commands.Channel.Close, 1)
    assert (closing.reply_code, closing.class_id, closing.method_id) == (404, 50, 10)
    raw.send(publish("nowhere", b"m"), method(commands.Channel.CloseOk(), 1))
    raw.channel(1)
    raw.call(commands.Basic.Qos(), commands.Basic.QosOk, 1)


@pytest.mark.parametrize(
    ("command", "number"),
    [
        (commands.Basic.Ack(delivery_tag=5), 80),
        (commands.Basic.Reject(delivery_tag=5), 90),
        (commands.Basic.Nack(delivery_tag=5), 120),
    ],
    ids=["ack", "reject", "nack"],
)
def test_the_error_tells_which_method_it_is_about(raw: Raw, command: Frame, number: int) -> None:
    raw.send(method(command, 1))
    closing = raw.expect(commands.Channel.Close, 1)
    assert (closing.reply_code, closing.class_id, closing.method_id) == (406, 60, number)


def test_flow_is_answered(raw: Raw) -> None:
    assert raw.call(commands.Channel.Flow(active=True), commands.Channel.FlowOk, 1).active
