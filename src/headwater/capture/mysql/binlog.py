"""The events of a binary log: bytes in, events out, no connection in sight.

A replica gets one packet for each event: a zero byte and the event, which is a header of 19 bytes, a body whose form
its type says, and a checksum where the server writes one. An event begins where the end that its header names is,
without its size.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from headwater.capture.change import Op
from headwater.capture.mysql.payload import Payload, length, unpacked
from headwater.capture.mysql.rows import Stored
from headwater.capture.source import CaptureError

__all__ = [
    "Commit",
    "Event",
    "Events",
    "Heartbeat",
    "Prepared",
    "Query",
    "Rotate",
    "Rows",
    "TableMap",
    "Transaction",
]

_HEADER = struct.Struct("<IBIIIH")
_QUERY = struct.Struct("<IIBHH")
_IGNORABLE = 0x80
_ROWS: dict[int, Op] = {23: "c", 24: "u", 25: "d", 30: "c", 31: "u", 32: "d"}
_COMPRESSED_ROWS: dict[int, Op] = {166: "c", 167: "u", 168: "d", 169: "c", 170: "u", 171: "d"}
_SECOND_FORM = (30, 31, 32, 169, 170, 171)
_WITHOUT_MEANING = frozenset({3, 5, 13, 14, 29, 35, 36, 37, 160, 161, 163})
"""Stop, variables of statements, annotations, lists of GTIDs, checkpoints: nothing that changes a row."""
_UNREADABLE = {
    17: "rows loaded with LOAD DATA in statements: set binlog_format to ROW",
    18: "rows loaded with LOAD DATA in statements: set binlog_format to ROW",
    26: "an incident, behind which changes may be missing: start again with a new snapshot",
    39: "updates of parts of a JSON document: clear binlog_row_value_options",
    42: "GTIDs with tags: leave the tags out",
    164: "encrypted events: set encrypt_binlog to OFF",
}
_METADATA_BYTES = {
    **dict.fromkeys((4, 5, 17, 18, 19, 140, 245, 249, 250, 251, 252, 255), 1),
    **dict.fromkeys((15, 16, 141, 246, 247, 248, 253, 254), 2),
}


class Rotate(NamedTuple):
    """The log goes on in another file."""

    file: str
    position: int


class Heartbeat(NamedTuple):
    """Nothing has happened for a while."""


class Transaction(NamedTuple):
    """A transaction begins that has a GTID, or, in MySQL without them, may have none."""

    gtid: str | None
    prepared: bool
    """Whether it is the prepared part of a distributed transaction, of which nobody knows yet how it will end."""
    begin: int
    time_us: int
    is_open: bool = True
    """Whether a commit must come; MySQL says so with a BEGIN behind it."""


class Query(NamedTuple):
    """A statement: BEGIN, COMMIT, a change of a table, and many more."""

    schema: str
    text: str
    begin: int
    end: int
    time_us: int


class Commit(NamedTuple):
    """A transaction is over."""

    end: int


class Prepared(NamedTuple):
    """A distributed transaction is prepared."""

    end: int


@dataclass(frozen=True)
class TableMap:
    """A table and how its columns are stored, in front of its rows."""

    table_id: int
    schema: str
    name: str
    columns: tuple[Stored, ...]
    names: tuple[str, ...]
    """Where `binlog_row_metadata` is FULL; empty otherwise."""


class Rows(NamedTuple):
    """Rows that were created, updated (each as it was, then as it is) or deleted."""

    op: Op
    table_id: int
    data: bytes
    """The rows, all columns of each."""
    begin: int
    server_id: int


Event = Rotate | Heartbeat | Transaction | Query | Commit | Prepared | TableMap | Rows | Payload


class Events:
    """Makes events of packets, one after the other."""

    def __init__(self, *, checksums: bool) -> None:
        self._checksums = checksums
        self._maps: dict[bytes, TableMap] = {}

    def read(self, data: bytes) -> Event | None:
        """Return the event, or None where it changes nothing that matters here."""
        if data[4] == 15:
            self._describe(data)
            return None
        if self._checksums:
            if zlib.crc32(memoryview(data)[:-4]) != int.from_bytes(data[-4:], "little"):
                raise CaptureError(
                    "an event of the binary log has a wrong checksum: look after the server's disk"
                )
            data = data[:-4]
        return self._event(data)

    def inside(self, payload: Payload) -> Iterator[Event]:
        """Yield the events of a compressed transaction; all of them are where it is."""
        for data in unpacked(payload):
            event = self._event(data)
            if isinstance(event, Rows):
                yield event._replace(begin=payload.begin)
            elif isinstance(event, Query):
                yield event._replace(begin=payload.begin, end=payload.end)
            elif isinstance(event, Commit | Prepared):
                yield event._replace(end=payload.end)
            elif event is not None:
                yield event

    def _event(self, data: bytes) -> Event | None:
        seconds, code, server_id, size, end, flags = _HEADER.unpack_from(data)
        begin = end - size
        if code in _ROWS:
            return _rows(_ROWS[code], code, data, begin, server_id)
        if code == 19:
            return self._table_map(data)
        if code == 162:
            return _mariadb_transaction(data, begin, seconds, server_id)
        if code == 16:
            return Commit(end)
        if code in (33, 34):
            return _mysql_transaction(data, begin, seconds, named=code == 33)
        if code == 2:
            return _query(data, begin, end, seconds)
        if code in (27, 41):
            return Heartbeat()
        if code == 4:
            return Rotate(data[27:].decode(), int.from_bytes(data[19:27], "little"))
        if code == 40:
            return Payload.parse(data, begin, end)
        if code in _COMPRESSED_ROWS:
            return _rows(_COMPRESSED_ROWS[code], code, data, begin, server_id, is_compressed=True)
        if code == 165:
            return _query(data, begin, end, seconds, is_compressed=True)
        if code == 38:
            one_phase = data[19] != 0
            return Commit(end) if one_phase else Prepared(end)
        if code in _WITHOUT_MEANING or flags & _IGNORABLE:
            return None
        reason = _UNREADABLE.get(
            code, f"an event of a type {code} that is not known: capture from an older server"
        )
        raise CaptureError(f"the binary log has {reason}")

    def _describe(self, data: bytes) -> None:
        # The last of it says how the events behind it are checked: 0 is not at all, 1 is CRC-32.
        self._checksums = data[-5] == 1
        self._maps.clear()

    def _table_map(self, data: bytes) -> TableMap:
        body = data[19:]
        found = self._maps.get(body)
        if found is None:
            if len(self._maps) > 10_000:
                self._maps.clear()
            found = self._maps[body] = _table_map(body)
        return found


def _table_map(body: bytes) -> TableMap:
    table_id = int.from_bytes(body[:6], "little")
    at = 9 + body[8]
    schema = body[9:at].decode()
    at += 1  # each name ends in a zero byte
    name = body[at + 1 : at + 1 + body[at]].decode()
    at += 2 + body[at]
    count, at = length(body, at)
    codes = body[at : at + count]
    size, at = length(body, at + count)
    columns = _columns(codes, body[at : at + size])
    at += size + (count + 7) // 8
    return TableMap(table_id, schema, name, columns, _names(body, at))


def _columns(codes: bytes, metadata: bytes) -> tuple[Stored, ...]:
    columns: list[Stored] = []
    at = 0
    for code in codes:
        size = _METADATA_BYTES.get(code, 0)
        # Two bytes that are two numbers, or a type and a length, stand in their order; lengths of VARCHAR do not.
        order = "little" if code in (15, 141, 253) else "big"
        meta = int.from_bytes(metadata[at : at + size], "little" if order == "little" else "big")
        at += size
        if code == 254 and meta >> 8 in (247, 248):
            code, meta = meta >> 8, meta & 0xFF
        columns.append((code, meta))
    return tuple(columns)


def _names(body: bytes, at: int) -> tuple[str, ...]:
    while at < len(body):
        kind = body[at]
        size, at = length(body, at + 1)
        if kind == 4:
            names, end = [], at + size
            while at < end:
                width, at = length(body, at)
                names.append(body[at : at + width].decode())
                at += width
            return tuple(names)
        at += size
    return ()


def _rows(op: Op, code: int, data: bytes, begin: int, server_id: int, *, is_compressed: bool = False) -> Rows:
    at = 27
    if code in _SECOND_FORM:
        at += int.from_bytes(data[27:29], "little")
    count, at = length(data, at)
    width = (count + 7) // 8
    images = 2 if op == "u" else 1
    full = (1 << count) - 1
    for _ in range(images):
        if int.from_bytes(data[at : at + width], "little") & full != full:
            raise CaptureError(
                "the binary log has rows without all their columns: set binlog_row_image to FULL, for sessions that are"
                " open too, and start again with a new snapshot"
            )
        at += width
    rows = _uncompressed(data[at:]) if is_compressed else data[at:]
    return Rows(op, int.from_bytes(data[19:25], "little"), rows, begin, server_id)


def _uncompressed(data: bytes) -> bytes:
    """MariaDB's form: a byte with how many bytes hold the length, the length, and zlib's stream."""
    return zlib.decompress(data[1 + (data[0] & 7) :])


def _mariadb_transaction(data: bytes, begin: int, seconds: int, server_id: int) -> Transaction:
    number, domain, flags = struct.unpack_from("<QIB", data, 19)
    return Transaction(
        f"{domain}-{server_id}-{number}",
        prepared=bool(flags & 64),
        begin=begin,
        time_us=seconds * 1_000_000,
        is_open=not flags & 1,
    )


def _mysql_transaction(data: bytes, begin: int, seconds: int, *, named: bool) -> Transaction:
    gtid = None
    if named:
        server = data[20:36].hex()
        number = int.from_bytes(data[36:44], "little")
        gtid = f"{server[:8]}-{server[8:12]}-{server[12:16]}-{server[16:20]}-{server[20:]}:{number}"
    time_us = seconds * 1_000_000
    # MySQL 8 has the time of the commit in seven bytes behind two logical timestamps; its highest bit is a flag.
    if len(data) >= 68:
        time_us = int.from_bytes(data[61:68], "little") & ~(1 << 55)
    return Transaction(gtid, prepared=False, begin=begin, time_us=time_us, is_open=False)


def _query(data: bytes, begin: int, end: int, seconds: int, *, is_compressed: bool = False) -> Query:
    _, _, schema_size, _, status_size = _QUERY.unpack_from(data, 19)
    at = 32 + status_size
    schema = data[at : at + schema_size].decode(errors="replace")
    text = data[at + schema_size + 1 :]
    if is_compressed:
        text = _uncompressed(text)
    try:
        statement = text.decode()
    except UnicodeDecodeError:  # statements come in the character set of who sent them
        statement = text.decode("latin-1")
    return Query(schema, statement, begin, end, seconds * 1_000_000)
