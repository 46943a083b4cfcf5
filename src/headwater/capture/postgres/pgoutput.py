"""The messages of Postgres' `pgoutput`, version 1: bytes in, messages out, no I/O.

A message of the replication stream is one byte that says what it is, then that: `w`, a piece of the decoded log behind
24 bytes about it, or `k`, a sign of life. A piece of the log holds one message of pgoutput (Postgres' documentation,
"Logical Replication Message Formats"). A transaction is Begin, changes, Commit; transactions come one after another, in
the order of their commits. A Relation comes before the first change of its table, and again when the table has changed.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from headwater.capture.source import CaptureError

__all__ = [
    "UNCHANGED",
    "Begin",
    "Commit",
    "Delete",
    "Insert",
    "Keepalive",
    "MalformedMessage",
    "Message",
    "Other",
    "Relation",
    "RelationColumn",
    "Truncate",
    "Update",
    "Values",
    "decode",
    "decode_keepalive",
    "status_update",
]

HEADER: Final = 25
"""So many bytes stand before the message of pgoutput in a piece of the log: `w`, its place, the log's end, the time."""

UNCHANGED: Final = b"\x00unchanged"
"""Stands for a large value that did not change and that the log does not repeat; no text of Postgres has a zero."""

Values = list[bytes | None]
"""The text of each column's value, None for NULL, `UNCHANGED` itself for what the log does not say."""

_EPOCH_US = 946_684_800_000_000
"""Postgres counts microseconds from the year 2000."""

_INT = Struct(">I").unpack_from
_BEGIN = Struct(">cQqI").unpack_from
_COMMIT = Struct(">cBQQq").unpack_from
_RELATION = Struct(">cI").unpack_from
_TRUNCATE = Struct(">cIB").unpack_from
_SHORT = Struct(">H").unpack_from
_COLUMN = Struct(">Ii").unpack_from
_KEEPALIVE = Struct(">cQqB")
_STATUS = Struct(">cQQQqB")
_TEXT, _NULL, _SAME = b"tnu"
_NEW, _OLD, _KEY = b"NOK"


class MalformedMessage(CaptureError):
    """Bytes that are no message of pgoutput: another program than Postgres, or a version that we do not know."""


class Begin(NamedTuple):
    """A transaction starts to be told; it was committed long ago."""

    commit_lsn: int
    time_us: int
    xid: int


class Commit(NamedTuple):
    """All of a transaction was told."""

    commit_lsn: int
    end_lsn: int
    time_us: int


class RelationColumn(NamedTuple):
    """A column, as the log knows it."""

    is_key: bool
    """Whether it belongs to the replica identity."""
    name: str
    type_oid: int
    type_modifier: int


class Relation(NamedTuple):
    """A table as it is from here on."""

    oid: int
    schema: str
    name: str
    identity: str
    """The replica identity: d(efault), n(othing), f(ull) or i(ndex)."""
    columns: tuple[RelationColumn, ...]


class Insert(NamedTuple):
    """A new row."""

    relation: int
    new: Values


class Update(NamedTuple):
    """A row with other values; what it was is said if its key changed, or all of it if the identity is full."""

    relation: int
    is_key: bool
    old: Values | None
    new: Values


class Delete(NamedTuple):
    """A row that is gone: its key, or all of it if the identity is full."""

    relation: int
    is_key: bool
    old: Values


class Truncate(NamedTuple):
    """Tables that are empty now."""

    relations: tuple[int, ...]


class Other(NamedTuple):
    """A message that changes no row: the name of a type, an origin, an application's own."""

    kind: str


class Keepalive(NamedTuple):
    """A sign of life: how far the server has decoded its log, and whether it wants an answer now."""

    wal_end: int
    time_us: int
    wants_reply: bool


Message = Begin | Commit | Relation | Insert | Update | Delete | Truncate | Other


def decode(data: bytes, at: int = 0) -> Message:
    """Return the message of pgoutput that stands in `data` from `at` on; it must end where the bytes end."""
    try:
        kind = data[at]
        decoder = _DECODERS.get(kind)
        if decoder is None:
            raise MalformedMessage(
                f"pgoutput has no messages of the kind {chr(kind)!r} in version 1 of its protocol: {_shown(data)}"
            )
        message, end = decoder(data, at)
    except (StructError, IndexError, ValueError) as error:
        raise MalformedMessage(
            f"a message of pgoutput is cut off or damaged ({error}): {_shown(data)}"
        ) from None
    if end != len(data):
        raise MalformedMessage(
            f"a message of pgoutput is {end - len(data):+} bytes longer than it says: {_shown(data)}"
        )
    return message


def decode_keepalive(data: bytes) -> Keepalive:
    """Return what a `k` of the replication stream says."""
    if len(data) != _KEEPALIVE.size or data[:1] != b"k":
        raise MalformedMessage(f"a sign of life of the replication stream is damaged: {_shown(data)}")
    _, wal_end, time, reply = _KEEPALIVE.unpack(data)
    return Keepalive(wal_end, time + _EPOCH_US, bool(reply))


def status_update(flushed_lsn: int, time_us: int, *, wants_reply: bool = False) -> bytes:
    """Return what tells the server that it may forget everything before `flushed_lsn`."""
    return _STATUS.pack(b"r", flushed_lsn, flushed_lsn, flushed_lsn, time_us - _EPOCH_US, wants_reply)


def _shown(data: bytes) -> str:
    return f"{data[:60]!r}{'…' if len(data) > 60 else ''}"


def _values(data: bytes, at: int) -> tuple[Values, int]:
    """Return a row's values and where they end. This is the hot loop of streaming."""
    (count,) = _SHORT(data, at)
    at += 2
    values: Values = []
    append = values.append
    for _ in range(count):
        kind = data[at]
        if kind == _TEXT:
            begin = at + 5
            at = begin + _INT(data, at + 1)[0]
            append(data[begin:at])
        elif kind == _NULL:
            append(None)
            at += 1
        elif kind == _SAME:
            append(UNCHANGED)
            at += 1
        else:
            raise ValueError(f"a value of the kind {chr(kind)!r}")
    return values, at


def _insert(data: bytes, at: int) -> tuple[Message, int]:
    (relation,) = _INT(data, at + 1)
    if data[at + 5] != _NEW:
        raise ValueError("an insert without a new row")
    new, end = _values(data, at + 6)
    return Insert(relation, new), end


def _update(data: bytes, at: int) -> tuple[Message, int]:
    (relation,) = _INT(data, at + 1)
    at += 5
    old = None
    was = data[at]
    if was in (_KEY, _OLD):
        old, at = _values(data, at + 1)
    if data[at] != _NEW:
        raise ValueError("an update without a new row")
    new, end = _values(data, at + 1)
    return Update(relation, was == _KEY, old, new), end


def _delete(data: bytes, at: int) -> tuple[Message, int]:
    (relation,) = _INT(data, at + 1)
    was = data[at + 5]
    if was != _KEY and was != _OLD:
        raise ValueError("a delete without an old row")
    old, end = _values(data, at + 6)
    return Delete(relation, was == _KEY, old), end


def _begin(data: bytes, at: int) -> tuple[Message, int]:
    _, lsn, time, xid = _BEGIN(data, at)
    return Begin(lsn, time + _EPOCH_US, xid), at + 21


def _commit(data: bytes, at: int) -> tuple[Message, int]:
    _, _, lsn, end_lsn, time = _COMMIT(data, at)
    return Commit(lsn, end_lsn, time + _EPOCH_US), at + 26


def _truncate(data: bytes, at: int) -> tuple[Message, int]:
    _, count, _ = _TRUNCATE(data, at)
    end = at + 6 + 4 * count
    if end > len(data):
        raise ValueError("a list of tables that does not end")
    return Truncate(tuple(_INT(data, place)[0] for place in range(at + 6, end, 4))), end


def _relation(data: bytes, at: int) -> tuple[Message, int]:
    _, oid = _RELATION(data, at)
    schema, at = _name(data, at + 5)
    name, at = _name(data, at)
    identity = chr(data[at])
    (count,) = _SHORT(data, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        flags = data[at]
        column, at = _name(data, at + 1)
        columns.append(RelationColumn(bool(flags & 1), column, *_COLUMN(data, at)))
        at += 8
    # An empty schema is how the log calls the system's own.
    return Relation(oid, schema or "pg_catalog", name, identity, tuple(columns)), at


def _other(data: bytes, at: int) -> tuple[Message, int]:
    return Other(chr(data[at])), len(data)


def _name(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(0, at)
    return data[at:end].decode(), end + 1


_DECODERS = {
    ord("B"): _begin,
    ord("C"): _commit,
    ord("R"): _relation,
    ord("I"): _insert,
    ord("U"): _update,
    ord("D"): _delete,
    ord("T"): _truncate,
    ord("Y"): _other,
    ord("O"): _other,
    ord("M"): _other,
}
