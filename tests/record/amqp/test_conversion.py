"""Messages as records of a topic, and back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.record.amqp.conversion import message_of, record_of
from headwater.record.amqp.message import encode_address, pack_message
from headwater.record.amqp.properties import Properties
from headwater.record.records import Record

NOW = 1_700_000_000_123


def test_a_message_becomes_a_record() -> None:
    properties = Properties(
        content_type="text/plain", message_id="m-1", correlation_id="c-1", headers={"tenant": "acme"}
    )
    record = record_of(pack_message(encode_address("e", "customer-1"), properties, b"body"), NOW)
    assert (record.key, record.value, record.timestamp) == (b"customer-1", b"body", NOW)
    assert dict(record.headers) == {
        "tenant": b"acme",
        "amqp.content_type": b"text/plain",
        "amqp.message_id": b"m-1",
        "amqp.correlation_id": b"c-1",
    }


def test_without_a_routing_key_there_is_no_key() -> None:
    assert record_of(pack_message(encode_address("e", ""), Properties(), b"x"), NOW).key is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("text", b"text"),
        (b"\xff", b"\xff"),
        (None, None),
        (True, b"true"),
        (17, b"17"),
        (1.5, b"1.5"),
        (datetime(2026, 1, 1, tzinfo=UTC), b"2026-01-01T00:00:00+00:00"),
        ([1, "two"], b'[1, "two"]'),
        ({"deep": b"er"}, b'{"deep": "er"}'),
    ],
)
def test_headers_become_text_or_bytes(value: Any, expected: bytes | None) -> None:
    message = pack_message(encode_address("", "k"), Properties(headers={"h": value}), b"")
    assert record_of(message, NOW).headers == (("h", expected),)


def test_a_record_becomes_a_message() -> None:
    record = Record(17, NOW, b"key", b"value", (("h", b"text"), ("raw", b"\xff"), ("none", None)))
    message = message_of(record, "orders", 3)
    assert (message.exchange, message.routing_key, message.body()) == ("", "key", b"value")
    properties = message.properties()
    assert properties.headers == {
        "h": "text",
        "raw": b"\xff",
        "none": None,
        "x-headwater-topic": "orders",
        "x-headwater-partition": 3,
        "x-headwater-offset": 17,
        "x-headwater-timestamp": NOW,
    }
    assert (properties.delivery_mode, properties.timestamp) == (2, NOW // 1000)


def test_a_tombstone_and_a_long_key_say_what_they_are() -> None:
    message = message_of(Record(0, -1, b"k" * 300, None), "orders", 0)
    headers = message.properties().headers or {}
    assert (message.routing_key, message.body()) == ("", b"")
    assert (headers["x-headwater-tombstone"], headers["x-headwater-key"]) == (True, "k" * 300)


@given(st.text(max_size=40), st.binary(max_size=200), st.text(max_size=60), st.text(max_size=60))
def test_what_goes_through_a_topic_keeps_key_body_and_properties(
    key: str, body: bytes, content_type: str, message_id: str
) -> None:
    sent = Properties(content_type=content_type, message_id=message_id, headers={"h": "v"})
    record = record_of(pack_message(encode_address("e", key), sent, body), NOW)
    message = message_of(record, "t", 0)
    found = message.properties()
    assert (message.routing_key, message.body()) == (key, body)
    assert (found.content_type, found.message_id) == (content_type, message_id)
    assert (found.headers or {})["h"] == "v"
