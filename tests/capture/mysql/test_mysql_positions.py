"""Positions, and the events of a log that lead from one to the next."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.capture.change import Batch
from headwater.capture.mysql.binlog import (
    Commit,
    Events,
    Heartbeat,
    Query,
    Rotate,
    Rows,
    TableMap,
    Transaction,
)
from headwater.capture.mysql.config import Config
from headwater.capture.mysql.history import History
from headwater.capture.mysql.keys import KeyOrder
from headwater.capture.mysql.offset import Gtids, Offset, Piece
from headwater.capture.mysql.seen import Seen
from headwater.capture.mysql.stream import Stream
from headwater.capture.mysql.tables import Field, Table, dump_tables
from headwater.capture.mysql.text import Texts
from headwater.capture.source import CaptureError

USERS = Table("shop", "users", (Field("id", "int", None, False),), ("id",))
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


@given(st.sets(st.integers(1, 60)), st.randoms())
def test_gtids_of_mysql(numbers: set[int], draw: Any) -> None:
    order = sorted(numbers)
    draw.shuffle(order)
    gtids = Gtids("")
    for number in order:
        gtids.add(f"{UUID}:{number}")
    again = Gtids(str(gtids))
    assert str(again) == str(gtids)
    found = set()
    for part in filter(None, str(gtids).partition(":")[2].split(":")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    assert found == numbers
    assert str(gtids).count(":") == len([n for n in numbers if n - 1 not in numbers])


def test_gtids_of_mariadb() -> None:
    gtids = Gtids("1-2-3,0-1-45").add("0-9-46").add("10-1-1")
    assert str(gtids) == "0-9-46,1-2-3,10-1-1"
    assert str(Gtids("")) == ""
    with pytest.raises(CaptureError, match="has a tag"):
        Gtids(f"{UUID}:tag:1-5")


def offset(**more: Any) -> Offset:
    return Offset("binlog.000002", 100, "0-1-5", dump_tables([USERS]), **more)


def test_positions_are_json_and_read_back_as_the_same() -> None:
    pieces = {"shop.users": (Piece(("7",), ("binlog.000002", 100)), Piece(None, ("binlog.000003", 4)))}
    for one in (
        offset(),
        offset(transaction="0-1-6", event=2, row=9),
        offset(snapshot=pieces),
        offset(snapshot={}),
    ):
        assert Offset.parse(json.loads(json.dumps(one.position))) == one
    with pytest.raises(CaptureError, match="is no position in a binary log"):
        Offset.parse({"lsn": 5})


def test_what_a_snapshot_read_is_kept_until_the_log_is_behind_it() -> None:
    here, later = ("binlog.000002", 100), ("binlog.000010", 4)
    assert offset(snapshot={"a": (Piece(None, here),)}).settled().snapshot is None
    assert offset(snapshot={"a": (Piece(("1",), here),)}).settled().snapshot is not None
    assert offset(snapshot={"a": ()}).settled().snapshot is not None
    assert offset(snapshot={"a": (Piece(None, later),)}).settled().snapshot is not None
    assert Offset.order(("binlog.999999", 9)) < Offset.order(("binlog.1000000", 4))


def test_changes_that_were_read_are_no_news() -> None:
    early, late = ("binlog.000002", 100), ("binlog.000002", 500)
    seen = Seen({"shop.users": (Piece(("7",), early), Piece(None, late))}, KeyOrder(lambda *_: 0))
    between, behind = ("binlog.000002", 300), ("binlog.000002", 500)
    low, high = (b"7",), (b"8",)
    assert seen.news(USERS, "c", None, low, between) == ("c", None, low)
    assert seen.news(USERS, "c", None, high, between) is None
    assert seen.news(USERS, "u", low, high, between) == ("d", low, None)
    assert seen.news(USERS, "u", high, low, between) == ("c", None, low)
    assert seen.news(USERS, "u", high, high, behind) == ("u", high, high)
    assert not seen.is_all("shop.users", between)
    with pytest.raises(CaptureError, match="truncated while its snapshot was interrupted"):
        seen.check_whole(USERS, between)
    seen.settle(between)
    assert seen.snapshot is not None
    seen.settle(behind)
    assert seen.snapshot is None


def stream(at: Offset) -> Stream:
    return Stream(
        Config.parse("mysql://db/shop", ["users"]),
        at,
        History([USERS], [("shop", "users")], lambda _: USERS),
        Seen(at.snapshot, KeyOrder(lambda *_: 0)),
        Texts(lambda _: None),
        is_mariadb=True,
        end=("binlog.000003", 10),
    )


def numbers(*values: int) -> bytes:
    return b"".join(b"\x00" + struct.pack("<i", value) for value in values)


def feed(following: Stream, events: Iterable[Any]) -> list[Batch]:
    return [batch for event in events for batch in following._handlers[type(event)](event)]


MAP = TableMap(7, "shop", "users", ((3, 0),), ())
TRANSACTION = [
    Transaction("0-1-6", prepared=False, begin=100, time_us=5),
    MAP,
    Rows("c", 7, numbers(1, 2), 120, 1),
    TableMap(8, "shop", "others", ((3, 0),), ()),
    Rows("c", 8, numbers(9), 140, 1),
    Rows("c", 7, numbers(3, 4), 160, 1),
    Rows("d", 7, numbers(1), 180, 1),
]


@given(st.integers(0, len(TRANSACTION)), st.integers(0, len(TRANSACTION)))
def test_a_transaction_is_gone_on_with_where_it_was_left_however_often_it_is(first: int, second: int) -> None:
    found: list[tuple[str, Any]] = []
    position = offset().position
    for until in (first, second, len(TRANSACTION)):
        following = stream(Offset.parse(position))
        feed(following, TRANSACTION[:until])
        batch = following._cut()
        found += [(change.op, change.after or change.before) for change in batch.changes]
        position = json.loads(json.dumps(batch.position))
    assert found == [("c", (b"1",)), ("c", (b"2",)), ("c", (b"3",)), ("c", (b"4",)), ("d", (b"1",))]
    feed(following, [Commit(200)])
    assert following._cut().position == {**offset().position, "pos": 200, "gtid": "0-1-6"}


def test_statements_and_files() -> None:
    following = stream(offset())
    feed(
        following,
        [
            Transaction("0-1-6", prepared=False, begin=100, time_us=5, is_open=False),
            Query("shop", "TRUNCATE users", 110, 150, 5),
        ],
    )
    batch = following._cut()
    assert [change.op for change in batch.changes] == ["t"]
    assert batch.is_behind
    feed(
        following,
        [
            Rotate("binlog.000003", 4),
            Transaction("0-1-7", prepared=False, begin=4, time_us=5),
            Query("shop", "SAVEPOINT a", 5, 6, 5),
            Query("shop", "COMMIT", 50, 60, 5),
            Query("shop", "BEGIN", 60, 70, 5),
        ],
    )
    assert not following._cut().is_behind
    assert following._cut().position == {
        **offset().position,
        "file": "binlog.000003",
        "pos": 60,
        "gtid": "0-1-7",
    }
    with pytest.raises(CaptureError, match="rolled back"):
        feed(following, [MAP, Rows("c", 7, numbers(1), 70, 1), Query("shop", "ROLLBACK TO a", 80, 90, 5)])


def event(code: int, body: bytes, *, flags: int = 0) -> bytes:
    data = struct.pack("<IBIIIH", 1000, code, 9, 19 + len(body) + 4, 500, flags) + body
    return data + struct.pack("<I", zlib.crc32(data))


def test_events() -> None:
    events = Events(checksums=True)
    begin = 500 - 19 - 4
    assert events.read(event(16, bytes(8))) == Commit(500)
    assert events.read(event(27, b"binlog.000001")) == Heartbeat()
    assert events.read(event(4, struct.pack("<Q", 4) + b"binlog.000002")) == Rotate("binlog.000002", 4)
    assert events.read(event(162, struct.pack("<QIB", 46, 0, 1) + bytes(6))) == Transaction(
        "0-9-46", prepared=False, begin=begin - 19, time_us=1_000_000_000, is_open=False
    )
    gtid = bytes([0]) + bytes.fromhex(UUID.replace("-", "")) + struct.pack("<QBQQ", 23, 2, 1, 2)
    committed = (1_700_000_000_123_456).to_bytes(7, "little")
    found = events.read(event(33, gtid + committed))
    assert isinstance(found, Transaction)
    assert (found.gtid, found.time_us) == (f"{UUID}:23", 1_700_000_000_123_456)
    query = struct.pack("<IIBHH", 1, 0, 4, 0, 2) + b"\x00\x00" + b"shop\x00" + "ALTER é".encode()
    found = events.read(event(2, query))
    assert isinstance(found, Query)
    assert (found.schema, found.text) == ("shop", "ALTER é")
    assert events.read(event(160, b"INSERT")) is None
    assert events.read(event(99, b"", flags=0x80)) is None


def test_a_table_map_and_its_rows() -> None:
    events = Events(checksums=True)
    body = (7).to_bytes(6, "little") + b"\x01\x00" + b"\x04shop\x00" + b"\x05users\x00"
    body += b"\x04" + bytes([3, 15, 254, 246]) + b"\x06" + bytes([0x2C, 1, 247, 1, 10, 2]) + b"\x0e"
    names = b"".join(bytes([len(name)]) + name for name in (b"id", b"name", b"kind", b"price"))
    found = events.read(event(19, body + b"\x01\x01\x80" + b"\x04" + bytes([len(names)]) + names))
    columns = ((3, 0), (15, 300), (247, 1), (246, 10 << 8 | 2))
    assert found == TableMap(7, "shop", "users", columns, ("id", "name", "kind", "price"))
    rows = (7).to_bytes(6, "little") + b"\x00\x00" + b"\x02\x00" + b"\x04" + b"\xff\xff"
    assert events.read(event(31, rows + b"data")) == Rows("u", 7, b"data", 500 - 19 - 4 - 13 - 4, 9)
    compressed = b"\x81\x04" + zlib.compress(b"data")
    found = events.read(event(166, (7).to_bytes(6, "little") + b"\x00\x00" + b"\x04\x0f" + compressed))
    assert isinstance(found, Rows)
    assert found.data == b"data"


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (event(26, b""), "an incident"),
        (event(99, b""), "type 99 that is not known"),
        (event(16, bytes(8))[:-1] + b"\x00", "wrong checksum"),
        (event(23, bytes(8) + b"\x04\x07"), "rows without all their columns: set binlog_row_image to FULL"),
    ],
)
def test_events_that_cannot_be_read(data: bytes, sentence: str) -> None:
    with pytest.raises(CaptureError, match=sentence):
        Events(checksums=True).read(data)


def test_addresses() -> None:
    config = Config.parse("mariadb://ann:s%40@db:3307/shop?server_id=7&gtid=off&ca=/ca.pem", ["users", "b.c"])
    assert (config.password, config.port, config.server_id, config.gtid, config.tls.wanted) == (
        "s@",
        3307,
        7,
        False,
        True,
    )
    assert config.tables == (("shop", "users"), ("b", "c"))
    assert "s@" not in repr(config)
    first, second = (Config.parse("mysql://db/shop", ["users"]) for _ in range(2))
    assert 1 << 30 <= first.server_id < 1 << 31
    assert first.server_id != second.server_id
    for url, sentence in (
        ("mysql://db/shop?slot=x", "no parameter 'slot': it takes server_id"),
        ("mysql://db/shop?server_id=0", "server_id=0 is not a number"),
        ("mysql://db/shop?gtid=maybe", "gtid=maybe is neither on nor off"),
        ("mysql://db:99999/shop", "port"),
        ("mysql://db", "the table users is in no database"),
    ):
        with pytest.raises(CaptureError, match=sentence):
            Config.parse(url, ["users"])
