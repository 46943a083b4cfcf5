"""Records set aside: malformed ones as dead letters, late ones as they came with their origin in headers."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from typing import Any

from headwater.client import Cluster
from headwater.client.produce import produce
from headwater.pipeline.source import kernel
from headwater.pipeline.source.opened import Records, headers_of
from headwater.record.records import Record

__all__ = ["DEAD_LETTER_CONFIGS", "letter", "send_dead_letters", "send_late"]

DEAD_LETTER_CONFIGS = {"cleanup.policy": "compact"}
"""Keyed by origin: a record read twice is one letter, and one that was sent again is removed."""


def send_dead_letters(
    cluster: Cluster, to: str, records: Records, dead: Iterable[tuple[int, str]], topic: str, partition: int
) -> None:
    """Write a letter for each malformed record, given its row and the reason."""
    letters = [_letter(records, row, reason, topic, partition) for row, reason in dead]
    if letters:
        cluster.ensure_topic(to, 1, DEAD_LETTER_CONFIGS)
        produce(cluster, to, letters)


def _letter(records: Records, row: int, reason: str, topic: str, partition: int) -> Record:
    return letter(
        reason,
        topic,
        partition,
        int(records.table[row, kernel.OFFSET]),
        int(records.table[row, kernel.TIME]),
        records.key(row),
        records.value(row),
        headers_of(records, row),
    )


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


def send_late(
    cluster: Cluster, to: str, records: Records, rows: Iterable[int], topic: str, partition: int
) -> None:
    """Write late records, with key, value and headers, to a topic of their own."""
    late = []
    for row in rows:
        origin = {"topic": topic, "partition": partition, "offset": int(records.table[row, kernel.OFFSET])}
        headers = [*headers_of(records, row)]
        headers += [(f"headwater.{name}", str(value).encode()) for name, value in origin.items()]
        timestamp = max(int(records.table[row, kernel.TIME]), 0)
        late.append(Record(0, timestamp, records.key(row), records.value(row), tuple(headers)))
    if late:
        cluster.ensure_topic(to, len(cluster.partitions(topic)))
        produce(cluster, to, late)


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
