from __future__ import annotations

import contextlib
import doctest
import struct
from dataclasses import fields
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, header

import headwater.record.amqp.properties
from headwater.core.amqp import AmqpError, ReplyCode
from headwater.record.amqp.properties import NO_PROPERTIES, Facts, Properties, facts

strings = st.none() | st.text(max_size=20)
octets = st.none() | st.integers(0, 255)
tables = st.none() | st.dictionaries(
    st.text(max_size=5), st.text(max_size=5) | st.integers(-9, 9), max_size=3
)


def all_properties(
    *,
    delivery_mode: st.SearchStrategy[int | None] = octets,
    expiration: st.SearchStrategy[str | None] = strings,
) -> st.SearchStrategy[Properties]:
    return st.builds(
        Properties,
        content_type=strings,
        content_encoding=strings,
        headers=tables,
        delivery_mode=delivery_mode,
        priority=octets,
        correlation_id=strings,
        reply_to=strings,
        expiration=expiration,
        message_id=strings,
        timestamp=st.none() | st.integers(0, 2**64 - 1),
        type=strings,
        user_id=strings,
        app_id=strings,
        cluster_id=strings,
    )


publishable = all_properties(
    delivery_mode=st.sampled_from([None, 1, 2]), expiration=st.none() | st.integers(0, 10**9).map(str)
)


@given(properties=all_properties())
def test_properties_come_out_as_they_went_in(properties: Properties) -> None:
    assert Properties.decode(properties.encode()) == properties


@given(properties=publishable)
def test_facts_are_what_the_properties_say(properties: Properties) -> None:
    assert facts(properties.encode()) == Facts(
        persistent=properties.delivery_mode == 2,
        priority=properties.priority or 0,
        expiration_ms=None if properties.expiration is None else int(properties.expiration),
        headers=bool(properties.headers),
        user_id=properties.user_id is not None,
    )


@given(properties=publishable)
def test_pamqp_reads_what_is_written(properties: Properties) -> None:
    raw = properties.encode()
    (flags,) = struct.unpack_from(">H", raw)
    read = commands.Basic.Properties()
    if properties.timestamp is not None:
        properties.timestamp %= 2**32
        raw = properties.encode()
    read.unmarshal(flags, raw[2:])
    for field in fields(Properties):
        ours, theirs = (
            getattr(properties, field.name),
            getattr(read, field.name if field.name != "type" else "message_type"),
        )
        if isinstance(theirs, datetime):
            theirs = int(theirs.timestamp())
        assert ours == theirs or (field.name == "cluster_id" and ours is None and theirs == ""), field.name


def test_what_pamqp_writes_is_read() -> None:
    written = commands.Basic.Properties(
        content_type="application/json",
        headers={"n": 7, "deep": {"list": [1, "x", None]}},
        delivery_mode=2,
        priority=9,
        correlation_id="c",
        reply_to="amq.rabbitmq.reply-to",
        expiration="60000",
        message_id="m",
        timestamp=datetime(2026, 1, 1, tzinfo=UTC),
        message_type="t",
        user_id="guest",
        app_id="a",
    )
    raw = header.ContentHeader(body_size=5, properties=written).marshal()[12:]
    assert Properties.decode(raw) == Properties(
        content_type="application/json",
        headers={"n": 7, "deep": {"list": [1, "x", None]}},
        delivery_mode=2,
        priority=9,
        correlation_id="c",
        reply_to="amq.rabbitmq.reply-to",
        expiration="60000",
        message_id="m",
        timestamp=1767225600,
        type="t",
        user_id="guest",
        app_id="a",
    )
    assert facts(raw) == Facts(True, 9, 60000, True, True)


def test_a_message_without_properties_has_plain_facts() -> None:
    assert Properties().encode() == NO_PROPERTIES
    assert facts(NO_PROPERTIES) == Facts(False, 0, None, False, False)
    assert facts(Properties(headers={}).encode()).headers is False


@given(raw=st.binary(max_size=100))
def test_random_bytes_are_read_or_refused(raw: bytes) -> None:
    with contextlib.suppress(AmqpError):
        Properties.decode(raw)
    with contextlib.suppress(AmqpError):
        facts(raw)


@given(properties=publishable, data=st.data())
def test_properties_are_refused_wherever_they_are_cut(properties: Properties, data: st.DataObject) -> None:
    raw = properties.encode()
    cut = raw[: data.draw(st.integers(0, len(raw) - 1))]
    for read in (Properties.decode, facts):
        with pytest.raises(AmqpError) as refused:
            read(cut)
        assert refused.value.code is ReplyCode.SYNTAX_ERROR


@given(properties=publishable, more=st.binary(min_size=1, max_size=4))
def test_bytes_after_the_last_property_are_refused(properties: Properties, more: bytes) -> None:
    for read in (Properties.decode, facts):
        with pytest.raises(AmqpError, match="follow the last property"):
            read(properties.encode() + more)


def test_flags_beyond_the_fourteen_are_refused_where_they_change_what_follows() -> None:
    for read in (Properties.decode, facts):
        with pytest.raises(AmqpError, match="do not exist"):
            read(b"\x00\x01\x00\x00")
    assert facts(b"\x00\x02") == facts(NO_PROPERTIES)


def test_headers_that_claim_gigabytes_are_refused() -> None:
    for read in (Properties.decode, facts):
        with pytest.raises(AmqpError):
            read(b"\x20\x00\xff\xff\xff\xff")


@pytest.mark.parametrize(
    ("expiration", "reason"),
    [
        ("", "no_integer"),
        ("soon", "no_integer"),
        (" 5", "no_integer"),
        ("5s", '{leftover_string,"s"}'),
        ("1.5", '{leftover_string,".5"}'),
        ("-1", "{value_negative,-1}"),
        ("315360000001", "{value_too_large,315360000001}"),
        ("9" * 255, "{value_too_large,"),
    ],
)
def test_an_expiration_is_refused_in_rabbitmqs_words(expiration: str, reason: str) -> None:
    with pytest.raises(AmqpError) as refused:
        facts(Properties(expiration=expiration).encode())
    assert refused.value.reply_text.startswith(
        f"PRECONDITION_FAILED - invalid expiration '{expiration}': {reason}"
    )
    assert (refused.value.class_id, refused.value.method_id) == (60, 40)
    assert not refused.value.closes_connection


@pytest.mark.parametrize(
    ("expiration", "milliseconds"), [("0", 0), ("+7", 7), ("007", 7), ("315360000000", 315360000000)]
)
def test_an_expiration_is_milliseconds(expiration: str, milliseconds: int) -> None:
    assert facts(Properties(expiration=expiration).encode()).expiration_ms == milliseconds


@pytest.mark.parametrize("mode", [0, 3, 255])
def test_an_unknown_delivery_mode_is_refused(mode: int) -> None:
    with pytest.raises(AmqpError, match=rf"invalid message: {{delivery_mode_unknown,{mode}}}") as refused:
        facts(Properties(delivery_mode=mode).encode())
    assert refused.value.code is ReplyCode.PRECONDITION_FAILED


def test_strings_of_any_bytes_come_out_as_they_went_in() -> None:
    raw = b"\x80\x00\x03\xff\xfe\x00"
    assert Properties.decode(raw).encode() == raw


def test_what_does_not_fit_is_not_written() -> None:
    with pytest.raises(ValueError, match="256 bytes long"):
        Properties(message_id="x" * 256).encode()
    with pytest.raises(ValueError, match="timestamp"):
        Properties(timestamp=-1).encode()
    with pytest.raises(ValueError, match="256"):
        Properties(priority=256).encode()


def test_the_examples_are_true() -> None:
    assert doctest.testmod(headwater.record.amqp.properties).failed == 0
