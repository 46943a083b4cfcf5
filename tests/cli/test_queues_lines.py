"""Messages as lines of JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.cli.amqp import table
from headwater.cli.lines import BadLine
from headwater.cli.queue_lines import PERSISTENT, document, parse, plain
from headwater.client.amqp import Delivery
from headwater.record.amqp.properties import Properties

_TABLES = st.dictionaries(
    st.text(min_size=1, max_size=8),
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**63 - 1)
        | st.binary(max_size=8)
        | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=5,
    ),
    min_size=1,
    max_size=4,
)


def _delivery(body: bytes, properties: Properties) -> Delivery:
    return Delivery(1, False, "e", "k", properties.encode(), body)


@given(
    body=st.binary(max_size=40),
    headers=st.none() | _TABLES,
    message_id=st.none() | st.text(max_size=20),
    priority=st.none() | st.integers(0, 255),
)
def test_what_one_command_writes_another_reads(
    body: bytes, headers: dict[str, Any] | None, message_id: str | None, priority: int | None
) -> None:
    properties = Properties(delivery_mode=1, headers=headers, message_id=message_id, priority=priority)
    line = json.dumps(document("q", _delivery(body, properties)))
    draft = parse(line.encode(), {}, PERSISTENT)
    assert (draft.body, draft.properties, draft.routing_key) == (body, properties, "k")


def test_headers_that_json_has_no_word_for() -> None:
    headers = {"when": datetime(2026, 1, 2, tzinfo=UTC), "price": Decimal("1.50"), "raw": b"\xff"}
    shown = document("q", _delivery(b"", Properties(headers=headers)))["headers"]
    assert shown == {"when": "2026-01-02T00:00:00+00:00", "price": "1.50", "raw": {"base64": "/w=="}}


def test_a_plain_line_is_persistent_and_carries_the_common_headers() -> None:
    draft = plain(b"hello", {"a": 1}, PERSISTENT)
    assert (draft.body, draft.properties) == (b"hello", Properties(delivery_mode=2, headers={"a": 1}))


def test_what_the_line_says_comes_first() -> None:
    line = b'{"body": {"n": 1}, "headers": {"a": 2}, "properties": {"delivery_mode": 1}}'
    draft = parse(line, {"a": 1, "b": 1}, PERSISTENT)
    assert draft.body == b'{"n":1}'
    assert draft.properties == Properties(delivery_mode=1, headers={"a": 2, "b": 1})


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "not JSON"),
        ("1", "not a JSON object"),
        ('{"value": 1}', "no message has a 'value'"),
        ('{"headers": [1]}', "headers are an object"),
        ('{"routing_key": 1}', "is no routing key"),
        ('{"properties": [1]}', "properties are an object"),
        ('{"properties": {"ttl": "1"}}', "no message has a property 'ttl'"),
        ('{"properties": {"expiration": 1}}', "expiration is a text"),
        ('{"properties": {"priority": "1"}}', "priority is a number from 0 to 255"),
        ('{"properties": {"priority": 256}}', "priority is a number from 0 to 255"),
        ('{"body": {"base64": "?"}}', "is not base64"),
    ],
)
def test_lines_that_are_no_message(line: str, reason: str) -> None:
    with pytest.raises(BadLine, match=reason):
        parse(line.encode(), {}, PERSISTENT)


def test_arguments_are_json_or_text() -> None:
    pairs = [("ttl", "60000"), ("lazy", "true"), ("mode", "lazy"), ("id", '"7"'), ("none", "")]
    assert table(pairs) == {"ttl": 60000, "lazy": True, "mode": "lazy", "id": "7", "none": ""}
