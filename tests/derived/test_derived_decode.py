"""Records of a table's topic into rows by key."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.app.schema import parse
from headwater.derived.change import Row
from headwater.derived.columns import row_converter
from headwater.derived.decode import Decoder, KeyText, parse_object
from headwater.derived.errors import Unreadable

USERS = parse("id bigint, name string")
BY_ID = KeyText(["id"], USERS)

names = st.text(max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
rows = st.dictionaries(names, values, max_size=5).map(lambda row: {**row, "id": 7})


def test_a_flat_row_and_its_delete() -> None:
    decoder = Decoder("flat", BY_ID)
    text = '{"id":1,"name":"Ann","more":1.50}'
    assert decoder.read(b"1", text.encode()) == ("1", Row(text, parse_object(text)))
    assert decoder.read(b"1", None) == decoder.read(b'{"id": 1}', None) == ("1", None)


def test_digits_are_kept() -> None:
    found = Decoder("flat", BY_ID).read(None, b'{"id":1,"x":1.5000000000000000000000001}')
    assert found is not None
    assert found[1] is not None
    assert found[1].values["x"] == Decimal("1.5000000000000000000000001")


@settings(max_examples=60)
@given(rows, st.sampled_from(["c", "u", "r"]), st.sampled_from([None, 0, 2]), st.booleans())
def test_the_row_after_is_found_to_the_letter(
    row: dict[str, Any], op: str, indent: int | None, payload: bool
) -> None:
    after = json.dumps(row, indent=indent, ensure_ascii=False)
    text = f'{{"before": null, "x": {{"after": [1, "}}"]}}, "after": {after}, "op": "{op}"}}'
    if payload:
        text = f'{{"schema": {{"op": "d"}}, "payload": {text} }}'
    found = Decoder("debezium", BY_ID).read(None, text.encode())
    assert found == ("7", Row(after, parse_object(after)))


@settings(max_examples=60)
@given(rows, st.none() | rows, st.sampled_from(["c", "u", "r"]), names)
def test_the_quick_way_finds_the_same(
    row: dict[str, Any], before: dict[str, Any] | None, op: str, noise: str
) -> None:
    after, earlier, source = (
        json.dumps(each, separators=(",", ":"), ensure_ascii=False)
        for each in (row, before, {"x": noise, "op": "d"})
    )
    text = f'{{"before":{earlier},"after":{after},"source":{source},"op":"{op}","ts_ms":5}}'
    slow = text.replace('{"before"', '{ "before"', 1)
    found = Decoder("debezium", BY_ID).read(None, text.encode())
    assert (
        found
        == Decoder("debezium", BY_ID).read(None, slow.encode())
        == ("7", Row(after, parse_object(after)))
    )


def test_an_operation_inside_of_something_else_is_none() -> None:
    inner = '"op":"c","ts_ms":5}'
    for text in (
        '{"before":null,"after":{"id":1},"source":{' + inner + "}",
        '{"before":null,"after":{"id":1,' + inner + "}",
    ):
        with pytest.raises(Unreadable, match="there is no op"):
            Decoder("debezium", BY_ID).read(b"1", text.encode())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b'{"id":1}', b'{"before":{"id":1},"after":null,"op":"d"}'),
        (None, b'{"before":{"id":1},"after":null,"op":"d"}'),
        (b'{"schema":{},"payload":{"id":1}}', None),
        (b'{"id":1}', b'{"schema":null,"payload":null}'),
    ],
)
def test_deletes_in_the_envelope(key: bytes | None, value: bytes | None) -> None:
    assert Decoder("debezium", BY_ID).read(key, value) == ("1", None)


def test_a_message_is_about_no_row() -> None:
    assert Decoder("debezium", BY_ID).read(None, b'{"op":"m","message":{}}') is None


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"{", "not JSON"),
        (b"[1]", "no JSON object"),
        (b'{"after":{"id":1}}', "there is no op"),
        (b'{"op":"c","after":null}', "c without the row after it"),
        (b'{"op":"t"}', "truncated"),
        (b'{"op":"x"}', "the operation is 'x'"),
        (b'{"op":"c","after":{"name":"Ann"}}', "has no id"),
        (b"\xff", "not JSON"),
        (b'{"op":"c","after":{"id":1}} x', "there is more behind the object"),
        (b'{"op":"c","after":{"id":1}', "the object does not end"),
        (b'{"op":"c","after":[1]}', "c without the row after it"),
    ],
)
def test_what_says_nothing_about_a_row_is_refused_with_the_reason(value: bytes, said: str) -> None:
    with pytest.raises(Unreadable, match=said):
        Decoder("debezium", BY_ID).read(b'{"id":1}', value)


@pytest.mark.parametrize(
    ("ddl", "key", "row", "records"),
    [
        ("id bigint", ["id"], {"id": 1}, [b"1", b'{"id":1}', b'{"id":1.0}']),
        ("id decimal(10,2)", ["id"], {"id": Decimal("1.50")}, [b"1.5", b"1.50", b'{"id":"1.50"}']),
        ("id double", ["id"], {"id": Decimal("2")}, [b"2", b"2.0"]),
        ("id array<double>", ["id"], {"id": [Decimal("1.5")]}, [b'{"id":[1.5]}', b'{"id":[1.50]}']),
        ("id string", ["id"], {"id": "a,b"}, [b"a,b", b'{"id":"a,b"}']),
        ("a string, b int", ["a", "b"], {"a": "x,y", "b": 2}, [b"x%2Cy,2", b'{"b":2,"a":"x,y"}']),
        ("ok boolean", ["ok"], {"ok": True}, [b"true", b'{"ok":true}']),
        ("id binary", ["id"], {"id": "/w=="}, [b"\xff", b'{"id":"/w=="}']),
    ],
)
def test_a_key_is_the_same_whoever_wrote_it(
    ddl: str, key: list[str], row: dict[str, Any], records: list[bytes]
) -> None:
    keys = KeyText(key, parse(ddl))
    assert {keys.of_row(row), *(keys.of_record(record) for record in records)} == {keys.of_row(row)}


def test_keys_of_many_digits_are_told_apart() -> None:
    keys = KeyText(["id"], parse("id decimal(38,2)"))
    near = ["123456789012345678901234567890123456.78", "123456789012345678901234567890123456.79"]
    assert [keys.of_row({"id": Decimal(each)}) for each in near] == near
    assert [keys.of_record(each.encode()) for each in near] == near


@pytest.mark.parametrize("ddl", ["id bigint", "id decimal(38,0)", "id double", "id string", "id boolean"])
@pytest.mark.parametrize("number", ["1e999999999", "-1E-999999999"])
def test_a_key_that_stands_for_millions_of_digits_costs_nothing(ddl: str, number: str) -> None:
    keys = KeyText(["id"], parse(ddl))
    assert len(keys.of_row({"id": Decimal(number)})) < 20
    assert len(keys.of_record(number.encode())) < 20
    for nested in (b'{"id":[1e999999999]}', b'{"id":[1e9999999999999999999]}'):
        with pytest.raises(Unreadable, match=r"id: .* is too large a number"):
            keys.of_record(nested)


def test_a_key_with_half_a_surrogate_pair_is_refused() -> None:
    keys = KeyText(["id"], parse("id string"))
    assert keys.of_record(b'{"id":"\\ud83d\\ude00"}') == "\U0001f600"
    with pytest.raises(Unreadable, match=r"id: .*ud83d holds half a surrogate pair"):
        keys.of_record(b'{"id":"\\ud83d"}')


@pytest.mark.parametrize("key", [None, b"\xff", b"a,b,c"])
def test_a_delete_of_nobody(key: bytes | None) -> None:
    with pytest.raises(Unreadable, match="a delete"):
        KeyText(["a", "b"], parse("a string, b string")).of_record(key)


def test_values_that_do_not_fit_their_columns() -> None:
    convert = row_converter(
        parse("id tinyint, at timestamp, price decimal(4,2), raw binary, tags array<string>")
    )
    good = '{"id":1,"at":"2026-01-01T01:00:00+01:00","price":1.5,"raw":"AA==","tags":["a",null]}'
    values = convert(Row(good, parse_object(good)))
    assert [values[0], str(values[1]), str(values[2]), *values[3:]] == [
        1, "2026-01-01 00:00:00+00:00", "1.50", b"\0", ["a", None],
    ]  # fmt: skip
    for bad in (
        '{"id":128}',
        '{"at":5}',
        '{"price":1.555}',
        '{"raw":"?"}',
        '{"tags":"a"}',
        '{"price":1e400}',
    ):
        with pytest.raises(Unreadable, match="is not"):
            convert(Row(bad, parse_object(bad)))


@pytest.mark.parametrize(
    "value", [b'{"id":1} {"id":2}', b'{"id":1}x', b'"id"', b"1", b'{"name":"Ann"}', b'{"id":null}']
)
def test_a_flat_row_that_is_none(value: bytes) -> None:
    with pytest.raises(Unreadable):
        Decoder("flat", BY_ID).read(b"1", value)


def test_rows_of_a_stream_are_known_by_their_records_keys() -> None:
    decoder = Decoder("flat", KeyText(["price", "at"]), keyed_by_text=True)
    for key in (b"1.0E10,2026-01-01T00:00:00.000Z", b"%0,2026-01-01T00:00:00.000Z"):
        found = decoder.read(key, b'{"price":1.0E10}')
        assert found is not None
        assert found[0] == key.decode()
        assert decoder.read(key, None) == (key.decode(), None)
    assert decoder.read(b"\xff", None) == ("/w==", None)
    for value in (None, b"{}"):
        with pytest.raises(Unreadable, match="without a key"):
            decoder.read(None, value)
