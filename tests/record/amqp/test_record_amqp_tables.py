from __future__ import annotations

import contextlib
import struct
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pamqp.decode
import pamqp.encode
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from headwater.core.amqp import AmqpError, ReplyCode
from headwater.record.amqp.tables import (
    MAX_DEPTH,
    Byte,
    Float,
    Long,
    Short,
    Table,
    Text,
    Timestamp,
    UnsignedByte,
    UnsignedInt,
    UnsignedShort,
    decode_pairs,
    decode_table,
    encode_table,
)

names = st.text(max_size=20)
times = st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31)).map(
    lambda time: time.replace(microsecond=0, tzinfo=UTC)
)
decimals = st.builds(
    lambda mantissa, scale: Decimal(mantissa).scaleb(-scale),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(0, 255),
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.binary(max_size=20)
    | times
    | decimals
    | st.integers(253402300800, 2**64 - 1).map(Timestamp)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)
tables = st.dictionaries(names, values, max_size=6)


def one(kind: bytes, raw: bytes = b"") -> bytes:
    pair = b"\x01k" + kind + raw
    return struct.pack(">I", len(pair)) + pair


def read_one(kind: bytes, raw: bytes = b"") -> Any:
    encoded = one(kind, raw)
    table, position = decode_table(encoded, 0)
    assert position == len(encoded)
    return table["k"]


@given(table=tables, before=st.binary(max_size=3), after=st.binary(max_size=3))
def test_a_table_comes_out_as_it_went_in(table: Table, before: bytes, after: bytes) -> None:
    encoded = encode_table(table)
    data = before + encoded + after
    for buffer in (data, bytearray(data), memoryview(data)):
        decoded, position = decode_table(buffer, len(before))
        assert decoded == table
        assert position == len(before) + len(encoded)
    assert decode_pairs(encoded[4:]) == table
    assert encode_table(decoded) == encoded


@given(table=tables)
def test_types_survive_and_not_only_values(table: Table) -> None:
    decoded, _ = decode_table(encode_table(table), 0)
    assert [type(value) for value in decoded.values()] == [type(value) for value in table.values()]


@pytest.mark.parametrize(
    ("kind", "raw", "value"),
    [
        (b"t", b"\x01", True),
        (b"t", b"\x00", False),
        (b"t", b"\x05", True),
        (b"b", b"\xff", Byte(-1)),
        (b"B", b"\xff", UnsignedByte(255)),
        (b"s", b"\xff\xfe", Short(-2)),
        (b"u", b"\xff\xfe", UnsignedShort(65534)),
        (b"I", b"\xff\xff\xff\xff", -1),
        (b"i", b"\xff\xff\xff\xff", UnsignedInt(2**32 - 1)),
        (b"l", b"\xff" * 8, Long(-1)),
        (b"l", b"\x00\x00\x00\x01" + bytes(4), 2**32),
        (b"L", b"\xff" * 8, Long(-1)),
        (b"f", struct.pack(">f", 1.5), Float(1.5)),
        (b"d", struct.pack(">d", 0.1), 0.1),
        (b"D", b"\x02\x00\x00\x01\x3a", Decimal("3.14")),
        (b"D", b"\x01\xff\xff\xff\xfb", Decimal("-0.5")),
        (b"S", b"\x00\x00\x00\x03caf", "caf"),
        (b"S", b"\x00\x00\x00\x05caf\xc3\xa9", "café"),
        (b"S", b"\x00\x00\x00\x02\xff\xfe", Text(b"\xff\xfe")),
        (b"x", b"\x00\x00\x00\x02hi", b"hi"),
        (b"A", b"\x00\x00\x00\x03t\x01V", [True, None]),
        (b"T", struct.pack(">Q", 1_700_000_000), datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)),
        (b"T", struct.pack(">Q", 1_700_000_000_000), Timestamp(1_700_000_000_000)),
        (b"T", b"\xff" * 8, Timestamp(2**64 - 1)),
        (b"F", b"\x00\x00\x00\x03\x01aV", {"a": None}),
        (b"F", b"\x00\x00\x00\x00", {}),
        (b"V", b"", None),
    ],
)
def test_every_type_that_rabbitmq_reads_is_read(kind: bytes, raw: bytes, value: Any) -> None:
    read = read_one(kind, raw)
    assert read == value
    assert type(read) is type(value)
    if (kind, raw) != (b"t", b"\x05"):  # that it is true is all that is known of it
        assert encode_table({"k": read}) == one(kind.replace(b"L", b"l"), raw)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, b"t"),
        (2**31 - 1, b"I"),
        (-(2**31), b"I"),
        (2**31, b"l"),
        (-(2**63), b"l"),
        (1.0, b"d"),
        ("x", b"S"),
        (b"x", b"x"),
        (bytearray(b"x"), b"x"),
        (None, b"V"),
        (datetime(2026, 1, 1, tzinfo=UTC), b"T"),
        (Timestamp(2**63), b"T"),
        (Decimal("1.5"), b"D"),
        ([], b"A"),
        ((1,), b"A"),
        ({}, b"F"),
    ],
)
def test_each_python_type_is_written_as_one_of_amqps(value: Any, kind: bytes) -> None:
    assert encode_table({"k": value})[6:7] == kind


@given(table=tables)
def test_pamqp_reads_what_is_written(table: Table) -> None:
    expected = as_pamqp(table)
    encoded = encode_table(table)
    assert pamqp.decode.field_table(encoded) == (len(encoded), expected)


def as_pamqp(value: Any) -> Any:
    """What pamqp makes of a value: it takes late times for milliseconds, and decimals for unsigned."""
    match value:
        case Timestamp():
            assume(value < 2**47)
            return pamqp.decode.timestamp(struct.pack(">Q", value))[1]
        case datetime() if value.timestamp() > 2**32 - 1:
            return pamqp.decode.timestamp(struct.pack(">Q", int(value.timestamp())))[1]
        case Decimal():
            return pamqp.decode.decimal(encode_table({"": value})[6:])[1]
        case dict():
            return {name: as_pamqp(inner) for name, inner in value.items()}
        case list():
            return [as_pamqp(inner) for inner in value]
        case _:
            return value


@given(
    table=st.dictionaries(
        names,
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**63 - 1)
        | st.text(max_size=20)
        | st.floats(width=32, allow_nan=False)
        | times
        | st.binary(max_size=9).map(bytearray)
        | st.builds(
            lambda mantissa, scale: Decimal(mantissa).scaleb(-scale),
            st.integers(0, 2**31 - 1),
            st.integers(0, 5),
        )
        | st.lists(st.integers(-300, 70000), max_size=3)
        | st.dictionaries(names, st.text(max_size=3), max_size=3),
        max_size=6,
    )
)
def test_what_pamqp_writes_is_read(table: Any) -> None:
    encoded = pamqp.encode.field_table(table)
    assert decode_table(encoded, 0) == (table, len(encoded))


@given(data=st.binary(max_size=200))
@example(data=b"\x00\x00\x00\x01\x05")
def test_random_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(AmqpError):
        _, position = decode_table(data, 0)
        assert position <= len(data)
    with contextlib.suppress(AmqpError):
        decode_pairs(data)


@given(table=tables.filter(bool), data=st.data())
def test_a_damaged_table_is_read_or_refused(table: Table, data: st.DataObject) -> None:
    encoded = bytearray(encode_table(table))
    for _ in range(data.draw(st.integers(1, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(AmqpError):
        decode_table(encoded, 0)


@given(table=tables.filter(bool), data=st.data())
def test_a_truncated_table_is_refused_wherever_it_is_cut(table: Table, data: st.DataObject) -> None:
    encoded = encode_table(table)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    for buffer, end in ((encoded[:cut], None), (encoded, cut)):
        with pytest.raises(AmqpError) as refused:
            decode_table(buffer, 0, end)
        assert refused.value.code is ReplyCode.SYNTAX_ERROR
        assert refused.value.closes_connection


def test_a_value_may_not_reach_beyond_the_table_around_it() -> None:
    inner = b"\x01aS\x00\x00\x00\x05"
    encoded = struct.pack(">I", len(inner)) + inner + b"hello"
    with pytest.raises(AmqpError, match="5 bytes are announced where 0 are left"):
        decode_table(encoded, 0)


@pytest.mark.parametrize("kind", [b"\x00", b"Z", b"y", b"\xff"])
def test_an_unknown_type_is_refused(kind: bytes) -> None:
    with pytest.raises(AmqpError, match="unknown type"):
        read_one(kind, b"\x00" * 16)


def nested(depth: int, *, array: bool) -> bytes:
    """A table in which tables or arrays stand to this depth, the outermost being the first."""
    body = b""
    for _ in range(depth - 1):
        body = (b"" if array else b"\x01k") + (b"A" if array else b"F") + struct.pack(">I", len(body)) + body
    if array and body:
        body = b"\x01k" + body
    return struct.pack(">I", len(body)) + body


@pytest.mark.parametrize("array", [False, True])
def test_tables_are_read_to_the_greatest_depth_and_no_deeper(array: bool) -> None:
    table, _ = decode_table(nested(MAX_DEPTH, array=array), 0)
    assert encode_table(table) == nested(MAX_DEPTH, array=array)
    for depth in (MAX_DEPTH + 1, 20_000):
        with pytest.raises(AmqpError, match="nested deeper"):
            decode_table(nested(depth, array=array), 0)
    with pytest.raises(ValueError, match="nested deeper"):
        encode_table({"k": table})


@pytest.mark.parametrize("kind", [b"S", b"x", b"A", b"F"])
def test_a_length_of_gigabytes_is_refused_before_anything_is_made(kind: bytes) -> None:
    for length in (2**31 - 1, 2**31, 2**32 - 1):
        with pytest.raises(AmqpError, match="announced"):
            read_one(kind, struct.pack(">I", length) + b"x" * 10)


def test_names_of_any_bytes_come_out_as_they_went_in() -> None:
    encoded = one(b"V").replace(b"k", b"\xff")
    table, _ = decode_table(encoded, 0)
    assert encode_table(table) == encoded


@pytest.mark.parametrize(
    "value",
    [
        2**63,
        -(2**63) - 1,
        Decimal("NaN"),
        Decimal("Infinity"),
        Decimal(2**31),
        Decimal("1E+11"),
        Decimal("1E-256"),
        datetime(1969, 12, 31, tzinfo=UTC),
    ],
)
def test_what_no_table_holds_is_not_written(value: Any) -> None:
    with pytest.raises(ValueError, match=r"does not fit|decimal|1970"):
        encode_table({"k": value})


def test_a_large_decimal_is_written_out() -> None:
    assert decode_table(encode_table({"k": Decimal("2E+3")}), 0)[0] == {"k": Decimal(2000)}


def test_times_are_written_in_utc() -> None:
    east = timezone(timedelta(hours=2))
    table, _ = decode_table(
        encode_table({"east": datetime(2026, 1, 1, 2, tzinfo=east), "naive": datetime(2026, 1, 1)}), 0
    )
    assert table == {"east": datetime(2026, 1, 1, tzinfo=UTC), "naive": datetime(2026, 1, 1, tzinfo=UTC)}


def test_other_types_and_long_names_are_not_written() -> None:
    with pytest.raises(TypeError, match="cannot hold a set"):
        encode_table({"k": {1}})
    with pytest.raises(ValueError, match="longer than 255"):
        encode_table({"k" * 256: 1})
    assert decode_table(encode_table({"k" * 255: 1}), 0)[0] == {"k" * 255: 1}
