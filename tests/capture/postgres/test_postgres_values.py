"""Values of Postgres as JSON, without a server."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.capture.postgres.types import TypeRow, Types
from headwater.capture.postgres.values import (
    Convert,
    array_of,
    as_is,
    boolean,
    date,
    hexadecimal,
    hstore,
    number,
    string,
    timestamp,
    timestamp_utc,
    unescaped,
)

_texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)


@given(_texts)
def test_any_text_is_the_same_text_in_json(text: str) -> None:
    assert json.loads(string(text.encode())) == text


@given(st.binary(max_size=40))
def test_bytes_are_base64(data: bytes) -> None:
    import base64

    assert base64.b64decode(json.loads(hexadecimal(b"\\x" + data.hex().encode()))) == data


@given(st.decimals(allow_nan=False, allow_infinity=False))
def test_a_number_keeps_its_digits(value: Decimal) -> None:
    text = f"{value:f}"
    assert json.loads(number(text.encode()), parse_float=Decimal, parse_int=Decimal) == value


@pytest.mark.parametrize(
    ("convert", "text", "value"),
    [
        (boolean, "t", True),
        (boolean, "f", False),
        (as_is, "-9223372036854775808", -9223372036854775808),
        (number, "NaN", "NaN"),
        (number, "-Infinity", "-Infinity"),
        (number, "1e+20", 1e20),
        (date, "2024-05-31", "2024-05-31"),
        (date, "infinity", "infinity"),
        (date, "0044-03-15 BC", "-0043-03-15"),
        (date, "0001-01-01 BC", "0000-01-01"),
        (date, "12024-05-31", "+12024-05-31"),
        (timestamp, "2024-05-31 12:34:56.123456", "2024-05-31T12:34:56.123456"),
        (timestamp, "-infinity", "-infinity"),
        (timestamp, "0044-03-15 12:00:00 BC", "-0043-03-15T12:00:00"),
        (timestamp, "12024-05-31 00:00:00", "+12024-05-31T00:00:00"),
        (timestamp_utc, "2024-05-31 12:34:56.1+00", "2024-05-31T12:34:56.1Z"),
        (timestamp_utc, "infinity", "infinity"),
        (timestamp_utc, "0044-03-15 12:00:00+00 BC", "-0043-03-15T12:00:00Z"),
        (array_of(as_is), "{1,NULL,3}", [1, None, 3]),
        (array_of(as_is), "{}", []),
        (array_of(as_is), "{{1,2},{3,4}}", [[1, 2], [3, 4]]),
        (array_of(as_is), "[2:3]={7,8}", [7, 8]),
        (
            array_of(string),
            r'{a,"b c","NULL",NULL,"q\"u\\o","","{,}"}',
            ["a", "b c", "NULL", None, 'q"u\\o', "", "{,}"],
        ),
        (hstore, "", {}),
        (
            hstore,
            r'"a"=>"1", "b"=>NULL, "c"=>"NULL", ""=>"", "q\"u\\o"=>"=>, \"x\""',
            {
                "a": "1",
                "b": None,
                "c": "NULL",
                "": "",
                'q"u\\o': '=>, "x"',
            },
        ),
        (array_of(hstore), r'{"\"a\"=>\"1\"",NULL}', [{"a": "1"}, None]),
        (array_of(timestamp_utc), '{"2024-05-31 12:34:56+00"}', ["2024-05-31T12:34:56Z"]),
    ],
)
def test_a_value_is_its_json(convert: Convert, text: str, value: Any) -> None:
    assert json.loads(convert(text.encode())) == value


@given(st.dictionaries(_texts, st.none() | _texts, max_size=5))
def test_an_hstore_is_an_object_of_its_pairs(pairs: dict[str, str | None]) -> None:
    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    written = ", ".join(
        f"{quoted(key)}=>{'NULL' if value is None else quoted(value)}" for key, value in pairs.items()
    )
    assert json.loads(hstore(written.encode())) == pairs


@given(st.lists(st.none() | _texts, min_size=1, max_size=5))
def test_a_line_of_copy_is_its_values(row: list[str | None]) -> None:
    escapes = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\b": "\\b", "\f": "\\f", "\v": "\\v"}
    line = "\t".join(
        "\\N" if text is None else "".join(escapes.get(letter, letter) for letter in text) for text in row
    )
    fields = [None if field == b"\\N" else unescaped(field) for field in line.encode().split(b"\t")]
    assert fields == [None if text is None else text.encode() for text in row]


_TYPES = Types(
    [
        TypeRow(1700, "b", "N", 0, ",", 0, -1),
        TypeRow(1231, "b", "A", 1700, ",", 0, -1),
        TypeRow(1007, "b", "A", 23, ",", 0, -1),
        TypeRow(1020, "b", "A", 603, ";", 0, -1),
        TypeRow(22, "b", "A", 21, ",", 0, -1),
        TypeRow(9001, "d", "N", 0, ",", 1700, ((10 << 16) | 2) + 4),
        TypeRow(9002, "d", "S", 0, ",", 1007, -1),
        TypeRow(9003, "e", "E", 0, ",", 0, -1),
        TypeRow(9004, "b", "U", 0, ",", 0, -1, is_hstore=True),
        TypeRow(9005, "b", "A", 9004, ",", 0, -1),
    ]
)


@pytest.mark.parametrize(
    ("oid", "modifier", "ddl"),
    [
        (16, -1, "boolean"),
        (17, -1, "binary"),
        (20, -1, "bigint"),
        (701, -1, "double"),
        (1184, -1, "timestamp"),
        (1114, -1, "timestamp_ntz"),
        (1700, ((10 << 16) | 2) + 4, "decimal(10,2)"),
        (1700, ((38 << 16) | 0) + 4, "decimal(38,0)"),
        (1700, ((39 << 16) | 0) + 4, "string"),
        (1700, ((3 << 16) | 5) + 4, "decimal(5,5)"),
        (1700, ((5 << 16) | (-2 & 0x7FF)) + 4, "decimal(7,0)"),
        (1700, -1, "string"),
        (1231, ((10 << 16) | 2) + 4, "array<decimal(10,2)>"),
        (1007, -1, "array<int>"),
        (1020, -1, "string"),
        (22, -1, "string"),
        (9001, -1, "decimal(10,2)"),
        (9002, -1, "array<int>"),
        (9003, -1, "string"),
        (9004, -1, "map<string,string>"),
        (9005, -1, "array<map<string,string>>"),
        (424242, -1, "string"),
    ],
)
def test_a_type_has_a_name_for_those_who_read_the_topic(oid: int, modifier: int, ddl: str) -> None:
    assert _TYPES.find(oid, modifier).ddl == ddl
