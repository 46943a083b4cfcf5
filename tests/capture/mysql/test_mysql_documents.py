"""JSON documents and compressed transactions of MySQL's binary log, from bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from headwater.capture.mysql.binlog import Commit, Event, Events, Query, Rows
from headwater.capture.mysql.document import document_text, normal_text
from headwater.capture.mysql.payload import Payload, unpacked
from headwater.capture.source import CaptureError


def stored(items: Iterable[tuple[int, bytes]]) -> bytes:
    """Return a small array of values that are not inlined."""
    found = [*items]
    at = 4 + 3 * len(found)
    entries = values = b""
    for kind, value in found:
        entries += struct.pack("<BH", kind, at + len(values))
        values += value
    return struct.pack("<BHH", 2, len(found), at + len(values)) + entries + values


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", "null"),
        (b"\x04\x01", "true"),
        (b"\x05\xff\xff", "-1"),
        (b"\x0a" + b"\xff" * 8, "18446744073709551615"),
        (b"\x0b" + struct.pack("<d", 1e100), "1e+100"),
        (b"\x0c\x03a\xc3\xa9", '"aé"'),
        # Two keys, a number in the place of one, and an array behind them.
        (
            bytes.fromhex("00 0200 2100 1200 0100 1300 0200 05 0100 02 1500 61 6262 0200 0c00 04 0000 0c 0a00 0178"),
            '{"a": 1, "bb": [null, "x"]}',
        ),
        (stored([(9, struct.pack("<q", -(2**40))), (12, b"\x01z")]), '[-1099511627776, "z"]'),
        (stored([(15, b"\x0b\x08" + struct.pack("<q", -(((12 << 12) + 14) << 24) - 5))]), '["-12:00:14.000005"]'),
        (stored([(15, b"\xf6\x04\x03\x02\x81\x0a")]), "[1.1]"),
        (stored([(15, b"\xfc\x02\x00\xff")]), '["base64:type252:AP8="]'),
    ],
)  # fmt: skip
def test_documents_as_the_log_has_them(raw: bytes, text: str) -> None:
    assert document_text(raw) == text


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (b'{"a":1,  "b":[1.10, 1e2]}', '{"a": 1, "b": [1.1, 100.0]}'),
        (b'[123456789012345678.5, 0.1, "\\u00e9"]', '[123456789012345678.5, 0.1, "é"]'),
        (b'{"n": {"x": 0.1000000000000000055511151231257827}}', '{"n": {"x": 0.1000000000000000055511151231257827}}'),
    ],
)  # fmt: skip
def test_documents_as_a_query_shows_them(shown: bytes, text: str) -> None:
    assert normal_text(shown) == text


def test_a_type_that_is_not_known_is_said() -> None:
    with pytest.raises(CaptureError, match=r"type \(14\) that is not known"):
        document_text(b"\x0e\x00")


def inner(code: int, body: bytes) -> bytes:
    return struct.pack("<IBIIIH", 1000, code, 9, 19 + len(body), 0, 0) + body


def compressed(events: Iterable[bytes], *, begin: int = 100, kind: int = 0) -> Payload:
    data = b"".join(events)
    packed = zstandard.compress(data) if kind == 0 else data
    size = struct.pack("<BI", 252, len(packed))[:3]
    # Its fields: the size of what follows, how it is compressed, and its size before that; then the end of them.
    fields = (
        b"\x01\x03"
        + size
        + b"\x02"
        + (b"\x01\x00" if kind == 0 else b"\x03\xfc\xff\x00")
        + b"\x03\x01\x00\x00"
    )
    event = inner(40, fields + packed)
    return Payload.parse(event, begin, begin + len(event))


@given(st.lists(st.binary(max_size=300), max_size=20), st.sampled_from([0, 255]))
def test_a_compressed_transaction_has_its_events(bodies: list[bytes], kind: int) -> None:
    events = [inner(3, body) for body in bodies]
    payload = compressed(events, kind=kind)
    assert payload.compression == kind
    assert [*unpacked(payload)] == events


def test_events_inside_are_where_the_transaction_is() -> None:
    begin = inner(2, struct.pack("<IIBHH", 0, 0, 4, 0, 0) + b"shop\0BEGIN")
    rows = inner(30, (7).to_bytes(6, "little") + b"\0\0\x02\0\x01\xff\x00\x01")
    payload = compressed([begin, rows, inner(16, bytes(8))])
    found: list[Event] = [*Events(checksums=True).inside(payload)]
    assert found == [
        Query("shop", "BEGIN", 100, payload.end, 1_000_000_000),
        Rows("c", 7, b"\x00\x01", 100, 9),
        Commit(payload.end),
    ]


def test_what_is_wrong_with_a_compressed_transaction_is_said() -> None:
    with pytest.raises(CaptureError, match=r"compressed in a way \(7\)"):
        [*unpacked(Payload(7, memoryview(b""), 0, 0))]
    with pytest.raises(CaptureError, match="ends too early"):
        [*unpacked(compressed([inner(3, bytes(40))[:-1]]))]
