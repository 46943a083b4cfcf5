"""Values from the bytes of the log, and the same from text."""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from headwater.capture.mysql.keys import KeyOrder, after
from headwater.capture.mysql.rows import RowReader, fits
from headwater.capture.mysql.tables import Field, Table
from headwater.capture.mysql.text import Texts, quote_utf8
from headwater.capture.mysql.values import float_json, from_text
from headwater.capture.source import CaptureError

LATIN = "".join(chr(byte) for byte in range(256))
TEXTS = Texts(lambda charset: LATIN if charset == "latin1" else None)


def read(native: str, code: int, meta: int, data: bytes, charset: str | None = None) -> bytes | None:
    table = Table("shop", "t", (Field("a", native, charset),), ("a",))
    row, end = RowReader(table, [(code, meta)], TEXTS).read(b"\x00" + data, 0)
    assert end == len(data) + 1
    return row[0]


def decimal_bytes(number: int, digits: int, behind: int) -> bytes:
    """Write a decimal as MySQL does: nine digits in four bytes, the rest in as few as will do."""
    sizes = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
    text = f"{abs(number):0{digits}d}"
    whole, fraction = text[: digits - behind], text[digits - behind :]
    first = len(whole) % 9
    groups = [whole[:first], *(whole[place : place + 9] for place in range(first, len(whole), 9))]
    groups += [fraction[place : place + 9] for place in range(0, len(fraction), 9)]
    raw = b"".join(int(group).to_bytes(sizes[len(group)], "big") for group in groups if group)
    if number < 0:
        raw = bytes(byte ^ 0xFF for byte in raw)
    return bytes([raw[0] ^ 0x80]) + raw[1:]


@given(st.data())
@settings(max_examples=examples(100))
def test_decimals(data: st.DataObject) -> None:
    digits = data.draw(st.integers(1, 65))
    behind = data.draw(st.integers(0, min(digits, 30)))
    number = data.draw(st.integers(-(10**digits) + 1, 10**digits - 1))
    text = f"{abs(number):0{behind + 1}d}"
    if behind:
        text = f"{text[:-behind]}.{text[-behind:]}"
    text = "-" * (number < 0) + text
    native = f"decimal({digits},{behind})"
    found = read(native, 246, digits << 8 | behind, decimal_bytes(number, digits, behind))
    assert found == from_text(Field("a", native))(text.encode())
    assert found == (f'"{text}"' if digits > 38 else text).encode()


@given(
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([("tinyint", 1), ("mediumint", 3), ("int", 4), ("bigint", 8)]),
)
def test_integers(number: int, how: tuple[str, int]) -> None:
    native, size = how
    raw = number.to_bytes(8, "little", signed=True)[:size]
    assert read(native, 8, 0, raw) == b"%d" % int.from_bytes(raw, "little", signed=True)
    assert read(f"{native} unsigned", 8, 0, raw) == b"%d" % int.from_bytes(raw, "little")


@given(st.datetimes(), st.integers(0, 6))
def test_datetimes(value: datetime, digits: int) -> None:
    packed = ((value.year * 13 + value.month) << 22) | (value.day << 17) | (value.hour << 12)
    packed |= (value.minute << 6) | value.second
    size = (digits + 1) // 2
    fraction = value.microsecond // 10 ** (6 - digits) * (10 if digits % 2 else 1)
    raw = (packed + 0x8000000000).to_bytes(5, "big") + fraction.to_bytes(size, "big")
    text = value.strftime("%Y-%m-%d %H:%M:%S").rjust(19, "0") + (
        f".{value.microsecond:06d}"[: digits + 1] if digits else ""
    )
    native = f"datetime({digits})"
    assert read(native, 18, digits, raw) == from_text(Field("a", native))(text.encode())


@given(st.integers(1, 2**32 - 1))
def test_timestamps(seconds: int) -> None:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    assert read("timestamp", 17, 0, seconds.to_bytes(4, "big")) == f'"{moment:%Y-%m-%dT%H:%M:%SZ}"'.encode()


@given(st.integers(-(838 * 3600), 838 * 3600), st.integers(0, 999_999))
def test_times(seconds: int, micros: int) -> None:
    hours, rest = divmod(abs(seconds), 3600)
    whole = (hours << 12 | (rest // 60) << 6 | rest % 60) << 24 | micros
    sign = -1 if seconds < 0 else 1
    raw = (sign * whole + (0x800000 << 24)).to_bytes(6, "big")
    text = f"{'-' if seconds < 0 else ''}{hours:02d}:{rest // 60:02d}:{rest % 60:02d}.{micros:06d}"
    assert read("time(6)", 19, 6, raw) == from_text(Field("a", "time(6)"))(text.encode())


@given(st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_floats_are_short_and_read_back_as_the_same(value: float) -> None:
    found = read("float", 4, 4, struct.pack("<f", value))
    assert found is not None
    assert struct.unpack("<f", struct.pack("<f", float(found)))[0] == value
    assert found == from_text(Field("a", "float"))(repr(value).encode())
    assert len(found) <= len(repr(value))


def test_a_float_has_no_more_digits_than_it_needs() -> None:
    assert float_json(struct.unpack("<f", struct.pack("<f", 0.1))[0]) == b"0.1"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text(text: str) -> None:
    assert json.loads(quote_utf8(text.encode())) == text
    raw = text.encode("utf-16-be")
    assert json.loads(read("longtext", 252, 4, len(raw).to_bytes(4, "little") + raw, "utf16") or b"") == text


@given(st.binary(max_size=300))
def test_text_of_one_byte_is_as_the_server_says(raw: bytes) -> None:
    found = read("varchar(300)", 15, 300, len(raw).to_bytes(2, "little") + raw, "latin1")
    assert json.loads(found or b"") == raw.decode("latin-1")


def test_a_character_set_that_nobody_knows() -> None:
    with pytest.raises(
        CaptureError, match="character set klingon cannot be read: convert the column to utf8mb4"
    ):
        TEXTS.quoting("klingon")


@pytest.mark.parametrize(
    ("native", "code", "meta", "data", "wanted"),
    [
        ("year", 13, 0, b"\x00", b"0"),
        ("year", 13, 0, b"\xff", b"2155"),
        ("date", 10, 0, b"\x00\x00\x00", b'"0000-00-00"'),
        ("date", 10, 0, (2024 << 9 | 2 << 5 | 29).to_bytes(3, "little"), b'"2024-02-29"'),
        ("timestamp(3)", 17, 3, bytes(6), b'"0000-00-00T00:00:00.000Z"'),
        ("datetime", 12, 0, (20240229121314).to_bytes(8, "little"), b'"2024-02-29T12:13:14"'),
        ("time", 11, 0, (-8385959).to_bytes(3, "little", signed=True), b'"-838:59:59"'),
        ("timestamp", 7, 0, (1).to_bytes(4, "little"), b'"1970-01-01T00:00:01Z"'),
        ("enum('a','b')", 247, 1, b"\x02", b'"b"'),
        ("enum('a','b')", 247, 2, b"\x00\x00", b'""'),
        ("set('a','b','c')", 248, 1, b"\x05", b'"a,c"'),
        ("bit(1)", 16, 0x0100, b"\x01", b"true"),
        ("bit(10)", 16, 0x0201, b"\x02\x01", b"513"),
        ("binary(4)", 254, 0xFE04, b"\x01\x07", b'"BwAAAA=="'),
        ("uuid", 254, 0xFE10, b"\x01\x12", b'"12000000-0000-0000-0000-000000000000"'),
        ("blob", 252, 2, b"\x01\x00\xff", b'"/w=="'),
        # MySQL's JSON: an object with two members, both within 16 bits.
        (
            "json", 245, 4,
            (23).to_bytes(4, "little") + bytes.fromhex("00 0200 1600 1200 0100 1300 0200 05 0700 04 0100 61 6262 00"),
            b'"{\\"a\\": 7, \\"bb\\": true}"',
        ),
    ],
)  # fmt: skip
def test_values(native: str, code: int, meta: int, data: bytes, wanted: bytes) -> None:
    assert read(native, code, meta, data) == wanted


def test_null_and_a_type_that_cannot_be_read() -> None:
    table = Table("shop", "t", (Field("a", "int"), Field("b", "int")), ("a",))
    assert RowReader(table, [(3, 0), (3, 0)], TEXTS).read(b"\x01\x07\x00\x00\x00", 0)[0] == (b"null", b"7")
    with pytest.raises(CaptureError, match="column a is of the type datetime"):
        read("datetime(3)", 12, 0, bytes(8))


def test_what_fits() -> None:
    assert fits(Field("a", "decimal(10,2)"), (246, 10 << 8 | 2))
    assert not fits(Field("a", "decimal(10,3)"), (246, 10 << 8 | 2))
    assert not fits(Field("a", "int"), (8, 0))
    assert fits(Field("a", "mediumtext"), (252, 3))
    assert fits(Field("a", "point"), (255, 4))


def quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def test_the_rows_behind_a_key() -> None:
    fields = (
        Field("a", "int"),
        Field("d", "datetime"),
        Field("b", "binary(2)"),
        Field("s", "varchar(9)", "utf8mb4"),
    )
    table = Table("shop", "t", fields, ("a", "d", "b", "s"))
    assert after(table, ("5", '"2024-01-01T00:00:00"', '"/w=="', '"it\'s"'), quote) == (
        "`a` >= 5 AND ((`a` > 5) OR (`a` = 5 AND `d` > '2024-01-01 00:00:00')"
        " OR (`a` = 5 AND `d` = '2024-01-01 00:00:00' AND `b` > x'ff')"
        " OR (`a` = 5 AND `d` = '2024-01-01 00:00:00' AND `b` = x'ff' AND `s` > 'it''s'))"
    )


def test_keys_are_ordered_as_the_server_orders_them() -> None:
    asked = []

    def ask(table: Table, field: Field, one: str, other: str) -> int:
        asked.append((one, other))
        return (one.lower() > other.lower()) - (one.lower() < other.lower())

    order = KeyOrder(ask)
    table = Table("shop", "t", (Field("s", "varchar(9)", "utf8mb4"), Field("n", "int")), ("s", "n"))
    assert order.is_until(table, (b'"a"', b"10"), ('"a"', "9")) is False
    assert order.is_until(table, (b'"a"', b"9"), ('"a"', "10")) is True
    assert not asked
    assert order.is_until(table, (b'"A"', b"9"), ('"a"', "9")) is True
    assert order.is_until(table, (b'"B"', b"9"), ('"a"', "10")) is False
    assert asked == [('"A"', '"a"'), ('"B"', '"a"')]
    kinds = Table("shop", "t", (Field("k", "enum('z','a')", "utf8mb4"),), ("k",))
    assert order.is_until(kinds, (b'"z"',), ('"a"',)) is True
