"""Records as lines of text."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.cli.lines import BadLine, Line, as_json, parse_json, parse_plain

NOW = 1_794_776_897_519
BYTES = st.none() | st.binary() | st.text().map(lambda text: text.encode(errors="ignore"))
NAMES = st.text(st.characters(codec="utf-8"))


@given(
    st.integers(0, 2**31 - 1),
    st.integers(1, 2**62),
    BYTES,
    BYTES,
    st.lists(st.tuples(NAMES, BYTES), max_size=4),
)
def test_what_is_consumed_can_be_produced(
    partition: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
) -> None:
    text = as_json("orders", partition, 7, timestamp, key, value, headers)
    assert "\n" not in text
    assert parse_json(text.encode(), NOW) == Line(value, key, tuple(headers), partition, timestamp)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{}", Line(None)),
        ('{"value": "v"}', Line(b"v")),
        ('{"value": {"a": [1, "ü"]}}', Line('{"a":[1,"ü"]}'.encode())),
        ('{"value": 17, "key": true}', Line(b"17", b"true")),
        ('{"value": {"base64": "/w=="}}', Line(b"\xff")),
        ('{"headers": [["h", "1"], ["h", null]]}', Line(None, None, (("h", b"1"), ("h", None)))),
        ('{"timestamp": "-10m", "partition": 3}', Line(None, partition=3, timestamp=NOW - 600_000)),
    ],
)
def test_json(text: str, line: Line) -> None:
    assert parse_json(text.encode(), NOW) == line


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("\xff", "not JSON"),
        ("[]", "not a JSON object"),
        ('"v"', "not a JSON object"),
        ('{"vaule": 1}', "no record has a 'vaule'"),
        ('{"partition": -1}', "-1 is not a partition"),
        ('{"partition": true}', "True is not a partition"),
        ('{"partition": 2147483648}', "is not a partition"),
        ('{"timestamp": "soon"}', "'soon' is not a time"),
        ('{"timestamp": 1.5}', "1.5 is not a time"),
        ('{"timestamp": -1}', "-1 is not a time"),
        ('{"headers": 3}', "headers are an object"),
        ('{"headers": [[1, "a"]]}', "headers are an object"),
        ('{"headers": ["abc"]}', "headers are an object"),
        ('{"value": {"base64": "*"}}', "is not base64"),
        ('{"value": {"base64": 3}}', "is not base64"),
        ('{"value": "\\ud800"}', "surrogate"),
    ],
)
def test_bad_json(text: str, reason: str) -> None:
    with pytest.raises(BadLine, match=reason):
        parse_json(text.encode("latin-1"), NOW)


@given(st.binary() | st.recursive(st.none() | st.text() | st.integers(), lambda s: st.lists(s) | st.dictionaries(
    st.sampled_from(["key", "value", "headers", "partition", "timestamp", "base64"]), s)).map(
    lambda value: json.dumps(value).encode()))  # fmt: skip
def test_any_line_is_a_record_or_a_reason(text: bytes) -> None:
    with contextlib.suppress(BadLine):
        assert isinstance(parse_json(text, NOW), Line)


def test_plain() -> None:
    headers = (("h", b"1"),)
    assert parse_plain(b"a:b:c", None, headers) == Line(b"a:b:c", headers=headers)
    assert parse_plain(b"a:b:c", b":", headers) == Line(b"b:c", b"a", headers)
    assert parse_plain(b"\xff::", b"::", ()) == Line(b"", b"\xff")
    with pytest.raises(BadLine, match="no key separator ':' in it"):
        parse_plain(b"abc", b":", ())
