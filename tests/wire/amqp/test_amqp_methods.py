from __future__ import annotations

import contextlib
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, frame
from pamqp.base import Frame

from headwater.core.amqp import AmqpError, ReplyCode
from headwater.wire.amqp import constants
from headwater.wire.amqp.errors import bad_frame, content_header_error, unexpected_frame
from headwater.wire.amqp.methods import (
    AccessRequest,
    AccessRequestOk,
    decode_method,
    encode_close,
    encode_method,
    make,
)

ALL: list[type[Frame]] = [*commands.INDEX_MAPPING.values(), AccessRequest, AccessRequestOk]
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "bit": st.booleans(),
    "octet": st.integers(0, 255),
    "short": st.integers(0, 2**16 - 1),
    "long": st.integers(0, 2**32 - 1),
    "longlong": st.integers(0, 2**64 - 1),
    "shortstr": st.text(max_size=60),
    "longstr": st.text(max_size=300) | st.just(b"\xff\x00\xfe"),
    "table": st.dictionaries(st.text(max_size=5), st.integers(-9, 9) | st.text(max_size=9), max_size=3),
}


@st.composite
def any_command(draw: st.DrawFn) -> Frame:
    kind = draw(st.sampled_from(ALL))
    return make(kind, **{name: draw(KINDS[kind.amqp_type(name)]) for name in kind.__slots__})


def payload(whole: bytes) -> bytes:
    kind, _, size = struct.unpack_from(">BHI", whole)
    assert kind == constants.METHOD
    assert whole[-1] == constants.FRAME_END
    assert len(whole) == size + constants.FRAME_OVERHEAD
    return whole[constants.FRAME_HEADER_SIZE : -1]


@given(command=any_command(), channel=st.integers(0, 65535))
def test_a_method_comes_out_as_it_went_in(command: Frame, channel: int) -> None:
    whole = encode_method(channel, command)
    assert struct.unpack_from(">xH", whole)[0] == channel
    for data in (payload(whole), memoryview(payload(whole))):
        decoded = decode_method(data)
        assert type(decoded) is type(command)
        assert dict(decoded) == dict(command)


@pytest.mark.parametrize("kind", commands.INDEX_MAPPING.values(), ids=lambda kind: kind.name)
def test_bytes_are_those_of_pamqp(kind: type[Frame]) -> None:
    samples: dict[str, Any] = {
        "bit": True,
        "octet": 9,
        "short": 515,
        "long": 70000,
        "longlong": 2**40,
        "shortstr": "abc",
        "longstr": "long",
        "table": {"k": 2**31 - 1, "s": "x"},
    }
    must_be_empty = {
        "ticket": 0,
        "capabilities": "",
        "insist": False,
        "out_of_band": "0",
        "known_hosts": "",
        "cluster_id": "",
    }
    command = make(
        kind, **{name: must_be_empty.get(name, samples[kind.amqp_type(name)]) for name in kind.__slots__}
    )
    if kind is commands.Channel.OpenOk:
        command = make(commands.Channel.OpenOk, channel_id="0")
    theirs = frame.marshal(command, 7)
    assert encode_method(7, command) == theirs
    assert dict(decode_method(payload(theirs))) == dict(command)


def test_what_the_specification_forbids_and_rabbitmq_allows_is_read() -> None:
    name = "é" * 127 + "!"
    for command in (
        make(commands.Queue.Declare, queue=name, ticket=1, arguments={"x-max-length": 5}),
        make(commands.Exchange.Declare, exchange=name, exchange_type="x-consistent-hash"),
        make(commands.Queue.DeclareOk, queue=name, message_count=3),
        make(commands.Connection.Open, virtual_host="/" * 255, capabilities="x", insist=True),
        make(commands.Channel.Open, out_of_band="x"),
        make(commands.Basic.GetOk, exchange=name, delivery_tag=2**64 - 1),
    ):
        assert dict(decode_method(payload(encode_method(1, command)))) == dict(command)


@pytest.mark.parametrize(
    ("command", "raw"),
    [
        (make(commands.Connection.UpdateSecret, new_secret="s", reason="r"), b"\0\x0a\0\x46\0\0\0\x01s\x01r"),
        (make(commands.Connection.Blocked, reason="low"), b"\0\x0a\0\x3c\x03low"),
        (make(commands.Connection.Unblocked), b"\0\x0a\0\x3d"),
        (make(commands.Basic.Nack, delivery_tag=1, requeue=True), b"\0\x3c\0\x78" + b"\0" * 7 + b"\x01\x02"),
        (make(commands.Confirm.Select, nowait=True), b"\0\x55\0\x0a\x01"),
        (
            make(commands.Exchange.Bind, destination="d", source="s"),
            b"\0\x28\0\x1e\0\0\x01d\x01s\0\0\0\0\0\0",
        ),
        (
            make(commands.Exchange.Unbind, destination="d", source="s"),
            b"\0\x28\0\x28\0\0\x01d\x01s\0\0\0\0\0\0",
        ),
        (make(commands.Exchange.UnbindOk), b"\0\x28\0\x33"),
        (make(AccessRequest, realm="/data", read=True), b"\0\x1e\0\x0a\x05/data\x10"),
        (make(AccessRequestOk, ticket=1), b"\0\x1e\0\x0b\0\x01"),
    ],
    ids=lambda value: value.name if isinstance(value, Frame) else "",
)
def test_rabbitmqs_own_methods_are_there(command: Frame, raw: bytes) -> None:
    assert payload(encode_method(0, command)) == raw
    assert dict(decode_method(raw)) == dict(command)


@given(data=st.binary(max_size=80))
def test_random_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(AmqpError):
        decode_method(data)


@given(kind=st.sampled_from(ALL), data=st.binary(max_size=60))
def test_random_fields_are_read_or_refused(kind: type[Frame], data: bytes) -> None:
    with contextlib.suppress(AmqpError):
        decode_method(struct.pack(">I", kind.index) + data)


@given(command=any_command(), data=st.data())
def test_a_method_is_refused_wherever_it_is_cut(command: Frame, data: st.DataObject) -> None:
    whole = payload(encode_method(0, command))
    with pytest.raises(AmqpError) as refused:
        decode_method(whole[: data.draw(st.integers(0, len(whole) - 1))])
    assert refused.value.code in (ReplyCode.FRAME_ERROR, ReplyCode.SYNTAX_ERROR)
    assert refused.value.closes_connection


@given(command=any_command(), more=st.binary(min_size=1, max_size=5))
def test_bytes_left_over_are_refused(command: Frame, more: bytes) -> None:
    with pytest.raises(AmqpError, match="follow its last field") as refused:
        decode_method(payload(encode_method(0, command)) + more)
    assert refused.value.code is ReplyCode.FRAME_ERROR
    assert (refused.value.class_id, refused.value.method_id) == (command.index >> 16, command.index & 0xFFFF)


@pytest.mark.parametrize(
    ("index", "code"),
    [
        (60 << 16 | 25, ReplyCode.NOT_IMPLEMENTED),
        (10 << 16 | 0, ReplyCode.NOT_IMPLEMENTED),
        (61 << 16 | 10, ReplyCode.COMMAND_INVALID),
        (0, ReplyCode.COMMAND_INVALID),
        (2**32 - 1, ReplyCode.COMMAND_INVALID),
    ],
)
def test_methods_and_classes_that_do_not_exist_are_refused_by_number(index: int, code: ReplyCode) -> None:
    with pytest.raises(AmqpError) as refused:
        decode_method(struct.pack(">I", index))
    assert refused.value.code is code
    assert (refused.value.class_id, refused.value.method_id) == (index >> 16, index & 0xFFFF)


def test_a_malformed_table_names_the_method_it_stands_in() -> None:
    declared = payload(encode_method(1, make(commands.Queue.Declare, queue="q", arguments={"k": "value"})))
    with pytest.raises(AmqpError, match="malformed table") as refused:
        decode_method(declared[:-1])
    assert refused.value.code is ReplyCode.FRAME_ERROR
    assert (refused.value.class_id, refused.value.method_id) == (50, 10)


def test_names_are_utf8_but_routing_keys_of_messages_are_any_bytes() -> None:
    with pytest.raises(AmqpError, match="Malformed UTF-8 in shortstr") as refused:
        decode_method(struct.pack(">IH", commands.Queue.Declare.index, 0) + b"\x01\xff\x00\0\0\0\0")
    assert refused.value.code is ReplyCode.FRAME_ERROR
    published = struct.pack(">IH", constants.BASIC_PUBLISH, 0) + b"\x00\x02\xff\xfe\x00"
    assert payload(encode_method(1, decode_method(published))) == published


def test_a_command_is_made_only_of_its_own_fields() -> None:
    assert dict(make(commands.Basic.Qos)) == {"prefetch_size": 0, "prefetch_count": 0, "global_": False}
    with pytest.raises(TypeError, match=r"Basic\.Qos has no field prefetch"):
        make(commands.Basic.Qos, prefetch=1)


@pytest.mark.parametrize(
    "command",
    [make(commands.Queue.DeclareOk, queue="x" * 256), make(commands.Queue.PurgeOk, message_count=2**32)],
    ids=["string", "number"],
)
def test_what_does_not_fit_is_not_written(command: Frame) -> None:
    with pytest.raises(ValueError, match=r"256 bytes long|PurgeOk"):
        encode_method(1, command)


@pytest.mark.parametrize(
    ("channel", "code", "kind", "sent_on"),
    [
        (3, ReplyCode.NOT_FOUND, commands.Channel.Close, 3),
        (3, ReplyCode.FRAME_ERROR, commands.Connection.Close, 0),
        (0, ReplyCode.ACCESS_REFUSED, commands.Connection.Close, 0),
    ],
)
def test_an_error_closes_what_its_code_says(
    channel: int, code: ReplyCode, kind: type[Frame], sent_on: int
) -> None:
    whole = encode_close(channel, AmqpError(code, "no queue 'x' in vhost '/'", 50, 10))
    assert struct.unpack_from(">xH", whole)[0] == sent_on
    close = decode_method(payload(whole))
    assert isinstance(close, kind)
    assert dict(close) == {
        "reply_code": int(code),
        "reply_text": f"{code.name} - no queue 'x' in vhost '/'",
        "class_id": 50,
        "method_id": 10,
    }


def test_a_long_error_is_cut_between_characters() -> None:
    close = decode_method(payload(encode_close(1, AmqpError(ReplyCode.NOT_FOUND, "é" * 200))))
    assert isinstance(close, commands.Channel.Close)
    assert close.reply_text.startswith("NOT_FOUND - éé")
    assert close.reply_text.endswith("é...")
    assert 252 <= len(close.reply_text.encode()) <= 255


def test_numbers_of_methods_are_those_of_pamqp() -> None:
    ours = {
        name: value for name, value in vars(constants).items() if isinstance(value, int) and value > 0xFFFF
    }
    ours.pop("FRAME_MAX")
    theirs = {
        kind.name.replace(".", "_").replace("Ok", "_Ok").replace("Empty", "_Empty").upper(): kind.index
        for kind in ALL
    }
    assert ours.items() <= theirs.items()
    assert {"BASIC_PUBLISH", "BASIC_DELIVER", "BASIC_ACK"} <= ours.keys()


def test_a_heartbeat_is_an_empty_frame() -> None:
    assert struct.pack(">BHIB", constants.HEARTBEAT, 0, 0, constants.FRAME_END) == constants.HEARTBEAT_FRAME


def test_frames_out_of_place_are_refused_in_rabbitmqs_words() -> None:
    assert unexpected_frame(1, b"\x00\x14").reply_text == "UNEXPECTED_FRAME - type 1, all octets = <<0,20>>"
    long = bad_frame(9, bytes(17), "unknown_frame").reply_text
    assert long == f"FRAME_ERROR - type 9, first 16 octets = <<{','.join(['0'] * 16)}>>: unknown_frame"


def test_content_headers_are_of_class_60_and_weigh_nothing() -> None:
    assert content_header_error(60, 0) is None
    other = content_header_error(50, 0)
    heavy = content_header_error(60, 1)
    assert other is not None
    assert heavy is not None
    assert other.code is heavy.code is ReplyCode.UNEXPECTED_FRAME
    assert other.text == "expected content header for class 60, got one for class 50 instead"
    assert heavy.text == "expected content header for class 60, got non content header frame instead"
    assert (other.class_id, other.method_id) == (60, 40)
