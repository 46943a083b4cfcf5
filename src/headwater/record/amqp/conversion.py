"""A message as a record of a topic, and a record as a message: what the bridge between queues and topics does.

message                                 record
routing key                             key; none where it is empty
body                                    value
headers                                 headers: text and bytes as they are, numbers, booleans and times as
                                        text, tables and lists as JSON
content_type, content_encoding,         headers `amqp.content_type` and so on
correlation_id, message_id, type,
app_id, reply_to

record                                  message
key                                     routing key; one of more than 255 bytes is in the header
                                        `x-headwater-key`, and the routing key is empty
value                                   body; none is an empty body and the header `x-headwater-tombstone`
headers                                 headers, as text where they are UTF-8; the last one of a name
headers `amqp.…` as above               those properties
topic, partition, offset, timestamp     headers `x-headwater-topic`, `x-headwater-partition`,
                                        `x-headwater-offset`, `x-headwater-timestamp` (milliseconds)
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from headwater.record.amqp.message import Message, encode_address, pack_message
from headwater.record.amqp.properties import Properties
from headwater.record.amqp.tables import Table
from headwater.record.records import Record

__all__ = ["message_of", "record_of"]

_PREFIX = "amqp."
_PROPERTIES = (
    "content_type", "content_encoding", "correlation_id", "message_id", "type", "app_id", "reply_to",
)  # fmt: skip
_LONGEST = 255
_PERSISTENT = 2


def record_of(message: Message, timestamp: int) -> Record:
    """Return the record that a message becomes."""
    key = message.address[2 + message.address[0] :]
    headers: list[tuple[str, bytes | None]] = []
    if len(message.raw_properties) > 2:
        properties = message.properties()
        for name, value in (properties.headers or {}).items():
            headers.append((_printable(name), _bytes(value)))
        for name in _PROPERTIES:
            if (text := getattr(properties, name)) is not None:
                headers.append((_PREFIX + name, text.encode("utf-8", "surrogateescape")))
    return Record(0, timestamp, key or None, message.body(), tuple(headers))


def _printable(name: str) -> str:
    return name.encode("utf-8", "replace").decode()


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, datetime):
        return value.isoformat().encode()
    if isinstance(value, list | dict):
        return json.dumps(value, default=_plain).encode("utf-8", "replace")
    return str(value).encode()


def _plain(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def message_of(record: Record, topic: str, partition: int) -> Message:
    """Return the message that a record of a topic becomes."""
    headers: Table = {}
    properties = Properties(delivery_mode=_PERSISTENT)
    if record.timestamp >= 0:
        properties.timestamp = record.timestamp // 1000
    for name, value in record.headers:
        if name.startswith(_PREFIX) and name[len(_PREFIX) :] in _PROPERTIES and _fits(value):
            setattr(properties, name[len(_PREFIX) :], (value or b"").decode("utf-8", "surrogateescape"))
        elif len(name.encode()) <= _LONGEST:
            headers[name] = _text(value)
    key = record.key or b""
    if len(key) > _LONGEST:
        headers["x-headwater-key"], key = _text(key), b""
    if record.value is None:
        headers["x-headwater-tombstone"] = True
    headers["x-headwater-topic"] = topic
    headers["x-headwater-partition"] = partition
    headers["x-headwater-offset"] = record.offset
    headers["x-headwater-timestamp"] = record.timestamp
    properties.headers = headers
    address = encode_address("", key.decode("utf-8", "surrogateescape"))
    return pack_message(address, properties, record.value or b"")


def _fits(value: bytes | None) -> bool:
    return value is not None and len(value) <= _LONGEST


def _text(value: bytes | None) -> str | bytes | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
