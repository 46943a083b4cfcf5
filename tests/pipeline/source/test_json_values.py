"""Every way of reading JSON against the rules, which are those of one record at a time."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from headwater.pipeline.source.decoded import Malformed
from headwater.pipeline.source.json_rows import row_reader
from headwater.pipeline.source.json_values import JsonDecoder

from .batches import records_of

pytestmark = pytest.mark.real  # the kernels are compiled at the first use

UTC_MICROS = pa.timestamp("us", "UTC")
FLAT = pa.schema(
    [
        ("s", pa.string()),
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("d", pa.float64()),
        ("b", pa.bool_()),
        ("t", UTC_MICROS),
        ("y", pa.date32()),
    ]
)
NESTED = pa.schema(
    [
        ("s", pa.string()),
        ("a", pa.list_(pa.field("element", pa.struct([("c", pa.int32()), ("d", pa.decimal128(10, 2))])))),
        ("m", pa.decimal128(10, 2)),
    ]
)
MAPPED = pa.schema([("m", pa.map_(pa.string(), pa.int64())), ("x", pa.binary()), ("s", pa.string())])

_numbers = st.one_of(
    st.integers(-(2**33), 2**33),
    st.integers(-(2**65), 2**65),
    st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(-1000, 1000, places=2).map(float),
)
_times = st.one_of(
    st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)).map(datetime.isoformat),
    st.datetimes(datetime(1, 1, 1)).map(lambda moment: moment.isoformat() + "Z"),
    st.datetimes(timezones=st.timezones()).map(datetime.isoformat),
    st.dates().map(date.isoformat),
    st.sampled_from(
        ["2024-02-30T00:00:00Z", "2024-01-01T24:00:00", "2024-01-01T00:00:00.1234567Z", "9999-12-31"]
    ),
)
_halves = st.sampled_from(["\ud83d", "x\udc00", "\ude00\ud83d", "\ud83d\ude00"])
_scalars = st.one_of(st.none(), st.booleans(), _numbers, st.text(max_size=8), _halves, _times)
_values = st.one_of(
    _scalars, st.lists(_scalars, max_size=2), st.dictionaries(st.text(max_size=2), _scalars, max_size=2)
)
_objects = st.dictionaries(st.sampled_from("silbtyamxuv"), _values, max_size=8)
_HUGE = ["1e400", "-1.5e400", "1e5000", "1e-5000", "1e999999999", "1E-999999999", "1e9999999999999999999"]


@st.composite
def _documents(draw: st.DrawFn) -> bytes | None:
    document = draw(_objects)
    spaces = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t:\r")]))
    text = json.dumps(document, separators=spaces, ensure_ascii=draw(st.booleans())).encode(
        "utf-8", "surrogatepass"
    )
    match draw(st.integers(0, 13)):
        case 0:
            return None
        case 1:  # damaged anywhere
            at = draw(st.integers(0, len(text)))
            return text[:at] + draw(st.binary(max_size=2)) + text[at + draw(st.integers(0, 2)) :]
        case 2:
            return draw(
                st.sampled_from([b"", b" ", b"{", b"}", b"[]", b"null", b"{}{}", b"{}\n{}", b'{"s":"}'])
            )
        case 3:
            return text + text
        case 4:
            return b" \n" + text + b"\r\n"
        case 5:
            name, huge = draw(st.sampled_from("silbtyamxuv")), draw(st.sampled_from(_HUGE))
            return f'{{"{name}":{draw(st.sampled_from([huge, f"[{huge}]"]))}}}'.encode()
    return text


def by_the_rules(
    schema: pa.Schema, values: list[bytes | None]
) -> tuple[dict[int, list[Any]], dict[int, str]]:
    read = row_reader(schema)
    rows: dict[int, list[Any]] = {}
    dead: dict[int, str] = {}
    for i, value in enumerate(values):
        if value is None:
            continue
        try:
            rows[i] = read(value)
        except Malformed as error:
            dead[i] = str(error)
    return rows, dead


def check(schema: pa.Schema, values: list[bytes | None]) -> None:
    rows, dead = by_the_rules(schema, values)
    decoded = JsonDecoder(schema).decode(records_of(values))
    found = list(range(len(values))) if decoded.rows is None else decoded.rows.tolist()
    assert found == sorted(rows)
    assert dict(decoded.dead) == dead
    assert all(reason.encode() for reason in dead.values())
    for number, field in enumerate(schema):
        column = decoded.columns[number]
        column.validate(full=True)
        expected = pa.array([rows[i][number] for i in found], field.type)
        assert column.type == field.type
        assert column.to_pylist() == expected.to_pylist(), field.name


@pytest.mark.parametrize("schema", [FLAT, NESTED, MAPPED], ids=["flat", "nested", "mapped"])
@settings(max_examples=examples(150), deadline=None)
@given(values=st.lists(_documents(), min_size=1, max_size=8))
def test_any_values_are_read_as_the_rules_say(schema: pa.Schema, values: list[bytes | None]) -> None:
    check(schema, values)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "s": st.text(max_size=5) | st.none(),
                "i": st.integers(-(2**31), 2**31 - 1),
                "l": st.integers(-(2**63), 2**63 - 1),
                "d": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-100, 100),
                "b": st.booleans(),
                "t": _times,
                "y": st.dates().map(date.isoformat),
            },
        ),
        min_size=1,
        max_size=6,
    )
)
def test_what_fits_the_schema_is_read_as_the_rules_say(documents: list[dict[str, Any]]) -> None:
    check(FLAT, [json.dumps(document, ensure_ascii=False).encode() for document in documents])


def test_many_values_with_a_few_malformed_ones() -> None:
    values: list[bytes | None] = [b'{"s":"x","a":[{"c":%d}],"m":"1.25"}' % i for i in range(1000)]
    values[10], values[500], values[999] = b"nonsense", b'{"m":1.255}', None
    check(NESTED, values)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"nonsense", "not JSON: Expecting value"),
        (b"[1]", "a JSON array where an object is declared"),
        (b'{"i":"1"}', 'i: "1" is not a whole number'),
        (b'{"i":3000000000}', "i: 3000000000 is not a number of 32 bits"),
        (
            b'{"t":1714564800}',
            "t: 1714564800 is not a time in ISO 8601; a number of seconds or ms is declared",
        ),
        (b'{"b":1}', "b: 1 is not true or false"),
        (b'{"d":NaN}', "not JSON: NaN is not JSON"),
        (b'{"s":"\xff"}', "not JSON: 'utf-8' codec"),
    ],
)
def test_a_malformed_value_has_a_reason(value: bytes, reason: str) -> None:
    decoded = JsonDecoder(FLAT).decode(records_of([b"{}", value]))
    assert [row for row, _ in decoded.dead] == [1]
    assert decoded.dead[0][1].startswith(reason)
    assert decoded.columns[0].to_pylist() == [None]


def test_the_values_of_each_type() -> None:
    schema = pa.schema([*FLAT, MAPPED.field("m"), MAPPED.field("x")])
    value = {
        "s": {"as": "text"}, "i": 1e3, "l": -5, "d": "NaN", "b": True, "t": "2024-05-01T12:00:00+02:00",
        "y": "2024-02-29", "m": {"k": 1}, "x": "YWJj", "unknown": [1, {"a": 2}],
    }  # fmt: skip
    decoded = JsonDecoder(schema).decode(records_of([json.dumps(value).encode()]))
    assert not decoded.dead
    row = [column.to_pylist()[0] for column in decoded.columns]
    assert math.isnan(row.pop(3))
    moment = datetime(2024, 5, 1, 10, tzinfo=UTC)
    assert row == ['{"as":"text"}', 1000, -5, True, moment, date(2024, 2, 29), [("k", 1)], b"abc"]


def test_decimals_keep_all_their_digits() -> None:
    schema = pa.schema([("m", pa.decimal128(38, 8))])
    digits = "123456789012345678901234567890.12345678"
    values = [f'{{"m":{digits}}}'.encode(), f'{{"m":"-{digits}"}}'.encode()]
    decoded = JsonDecoder(schema).decode(records_of(values))
    assert decoded.columns[0].to_pylist() == [Decimal(digits), Decimal(f"-{digits}")]
    assert decoded.dead == []


def test_decimals_are_not_rounded() -> None:
    schema = pa.schema([("m", pa.decimal128(5, 2))])
    values = [b'{"m":1.25}', b'{"m":"1.25"}', b'{"m":1.255}', b'{"m":1000}', b'{"m":1e2}']
    decoded = JsonDecoder(schema).decode(records_of(values))
    assert decoded.columns[0].to_pylist() == [Decimal("1.25"), Decimal("1.25"), Decimal("100.00")]
    assert [row for row, _ in decoded.dead] == [2, 3]
