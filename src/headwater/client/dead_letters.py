"""Records that could not be read, set aside with the reason and their origin, to be sent again after a fix.

A letter is written before whoever read the record moves on. So none is missing after a crash, and one may be written
again: its key is the origin, and the topic is compacted, so that it stays one letter.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

from headwater.client.cluster import Cluster
from headwater.client.errors import BrokerError
from headwater.client.produce import produce
from headwater.client.topic_settings import DEAD_LETTERS
from headwater.core.errors import ErrorCode
from headwater.record.records import Record

__all__ = ["letter", "send_letters"]


def letter(
    reason: str,
    topic: str,
    partition: int,
    offset: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> Record:
    """Return the dead letter of a record; its own key says where the record lies."""
    said: dict[str, Any] = {
        "reason": reason,
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": timestamp,
        "key": _base64(key),
        "value": _base64(value),
    }
    if headers:
        said["headers"] = [[name, _base64(content)] for name, content in headers]
    origin = f"{topic}/{partition}/{offset}"
    return Record(0, max(timestamp, 0), origin.encode(), json.dumps(said).encode())


def send_letters(cluster: Cluster, to: str, letters: Sequence[Record]) -> None:
    """Write letters to their topic, which is made where it is missing, and wait for them to be kept."""
    if not letters:
        return
    cluster.ensure_topic(to, 1, DEAD_LETTERS)
    try:
        produce(cluster, to, letters)
    except BrokerError as error:
        if error.code is not ErrorCode.message_too_large:
            raise
        largest = max(len(each.value or b"") for each in letters)
        raise BrokerError(
            error.code, f"dead letters for {to}",
            f"one of {largest:,} bytes does not fit: raise the topic's limit with `headwater topics alter {to} -c"
            f" max.message.bytes={DEAD_LETTERS['max.message.bytes']}`",
        ) from error  # fmt: skip


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
