"""The response of ShareFetch, versions 1 and 2: like that of Fetch, its records are never touched.

Requests are small and go the way of all others; the response is returned in pieces, its own bytes with
the caller's records between them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from headwater.wire.kafka.primitives import encode_uvarint

__all__ = ["SharePart", "encode_share_fetch_response"]

_I32 = struct.Struct(">i")
_HEAD = struct.Struct(">iBih")  # correlation id, no tags, throttle time, error code
_PART = struct.Struct(">ihBh")  # index, error, no message, acknowledgement's error
_LEADER = bytes(9)  # the leader's id and epoch, which nobody asks for here, and no tags
_ACQUIRED = struct.Struct(">qqhB")


class SharePart(NamedTuple):
    """One partition of a ShareFetch response; `records` is whatever the caller sends its bytes from."""

    partition: int
    error_code: int = 0
    ack_error_code: int = 0
    ack_error_message: str | None = None
    acquired: Sequence[tuple[int, int, int]] = ()  # (first offset, last offset, deliveries)
    records_length: int = 0
    records: Any = b""


def encode_share_fetch_response(
    correlation_id: int,
    throttle_ms: int,
    error_code: int,
    lock_ms: int,
    topics: Mapping[bytes, Sequence[SharePart]],
) -> list[Any]:
    """Encode a response frame as the pieces to send: bytes, records, bytes, records, … bytes."""
    pieces: list[Any] = []
    records_size = 0
    head = _HEAD.pack(correlation_id, 0, throttle_ms, error_code)
    own = [head, b"\0", _I32.pack(lock_ms), encode_uvarint(len(topics) + 1)]
    for topic_id, parts in topics.items():
        own += [topic_id, encode_uvarint(len(parts) + 1)]
        for part in parts:
            own.append(_PART.pack(part.partition, part.error_code, 0, part.ack_error_code))
            own += [_text(part.ack_error_message), _LEADER, encode_uvarint(part.records_length + 1)]
            if part.records_length:
                records_size += part.records_length
                pieces += [b"".join(own), part.records]
                own = []
            own.append(encode_uvarint(len(part.acquired) + 1))
            own += [_ACQUIRED.pack(*acquired, 0) for acquired in part.acquired]
            own.append(b"\0")
        own.append(b"\0")
    own.append(b"\1\0")  # no endpoints of other nodes
    pieces.append(b"".join(own))
    size = records_size + sum(map(len, pieces[::2]))
    pieces[0] = _I32.pack(size) + pieces[0]
    return pieces


def _text(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    data = text.encode()
    return encode_uvarint(len(data) + 1) + data
