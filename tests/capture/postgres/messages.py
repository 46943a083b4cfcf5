"""Messages of pgoutput, written as a server writes them."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from headwater.capture.postgres.pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    Message,
    Relation,
    Truncate,
    Update,
    Values,
)

EPOCH_US = 946_684_800_000_000


def piece(message: Message, lsn: int = 0) -> bytes:
    """Return a message as the replication stream has it."""
    return b"w" + struct.pack(">QQq", lsn, lsn, 0) + encode(message)


def encode(message: Message) -> bytes:
    """Return a message's bytes."""
    match message:
        case Begin(lsn, time_us, xid):
            return b"B" + struct.pack(">QqI", lsn, time_us - EPOCH_US, xid)
        case Commit(lsn, end_lsn, time_us):
            return b"C" + struct.pack(">BQQq", 0, lsn, end_lsn, time_us - EPOCH_US)
        case Relation(oid, schema, name, identity, columns):
            head = b"R" + struct.pack(">I", oid) + _name(schema) + _name(name) + identity.encode()
            body = b"".join(
                struct.pack(">B", column.is_key)
                + _name(column.name)
                + struct.pack(">Ii", column.type_oid, column.type_modifier)
                for column in columns
            )
            return head + struct.pack(">H", len(columns)) + body
        case Insert(relation, new):
            return b"I" + struct.pack(">I", relation) + b"N" + values(new)
        case Update(relation, is_key, old, new):
            before = b"" if old is None else (b"K" if is_key else b"O") + values(old)
            return b"U" + struct.pack(">I", relation) + before + b"N" + values(new)
        case Delete(relation, is_key, old):
            return b"D" + struct.pack(">I", relation) + (b"K" if is_key else b"O") + values(old)
        case Truncate(relations):
            return b"T" + struct.pack(f">IB{len(relations)}I", len(relations), 0, *relations)
        case _:
            return message.kind.encode()


def values(row: Values | Sequence[bytes | None]) -> bytes:
    """Return the bytes of a row's values."""
    out = struct.pack(">H", len(row))
    for value in row:
        if value is None:
            out += b"n"
        elif value is UNCHANGED:
            out += b"u"
        else:
            out += b"t" + struct.pack(">I", len(value)) + value
    return out


def _name(text: str) -> bytes:
    return text.encode() + b"\0"
