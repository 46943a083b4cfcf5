"""An event as a record of its topic, and back.

The key is the stream's name; the value is one JSON object with all there is to say, so that any Kafka
client, and a Spark pipeline, can read it:

    {"id", "stream", "version", "type", "schema", "time",
     "command_id", "causation_id", "correlation_id", "metadata",    where there are any
     "personal": {"key", "fields", "sealed"},                       of data that can be erased
     "data"}

The record's timestamp is the event's time. Headers repeat what a consumer may want to choose by before it
parses: event-id, event-type, event-version and the ids of command, causation and correlation.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from json.encoder import encode_basestring as _quoted
from typing import Any, NamedTuple

from headwater.core.errors import HeadwaterError
from headwater.events.event import MAX_NAME, Event, iso
from headwater.events.sealing import unseal
from headwater.record.records import Record

__all__ = ["NotAnEvent", "decode", "encode", "read_value"]

_IDS = ("command_id", "causation_id", "correlation_id")
_MAX_VERSION = 2**53


class NotAnEvent(HeadwaterError):
    """A record of the topic that no event store wrote."""


def encode(event: Event, data: str, metadata: str, offset: int, sealed: str = "") -> Record:
    """Return an event's record; `data` and `metadata` are those of the event as JSON.

    Of an event with personal data, `data` are the others, and `sealed` are those.
    """
    version, time_ms = event.version, event.time_ms
    identity, stream, kind = _quoted(event.id), _quoted(event.stream), _quoted(event.type)
    text = (
        f'{{"id":{identity},"stream":{stream},"version":{version},"type":{kind},'
        f'"schema":{event.schema},"time":"{iso(time_ms)}"'
    )
    headers = [
        ("event-id", event.id.encode()),
        ("event-type", event.type.encode()),
        ("event-version", b"%d" % version),
    ]
    for name in _IDS:
        value = getattr(event, name)
        if value is not None:
            text += f',"{name}":{_quoted(value)}'
            headers.append((name.replace("_", "-"), value.encode()))
    if event.metadata:
        text += f',"metadata":{metadata}'
    if event.key_id is not None:
        fields = json.dumps(event.personal, ensure_ascii=False)
        text += f',"personal":{{"key":{_quoted(event.key_id)},"fields":{fields},"sealed":{_quoted(sealed)}}}'
    value = f'{text},"data":{data}}}'.encode()
    return Record(offset, time_ms, event.stream.encode(), value, tuple(headers))


def decode(key: bytes | None, value: bytes | None, partition: int = -1, offset: int = -1) -> Event:
    """Return the event that a record holds; raise `NotAnEvent` with the reason where it holds none."""
    if value is None:
        raise NotAnEvent("it has no value")
    event = read_value(value, partition, offset)
    if key != event.stream.encode():
        raise NotAnEvent("its key is not the name of its stream")
    return event


def read_value(value: bytes, partition: int = -1, offset: int = -1, key: bytes | None = None) -> Event:
    """Return the event in a record's value; its personal data are erased for who has no key to them."""
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        raise NotAnEvent("its value is no JSON") from None
    if not isinstance(found, dict):
        raise NotAnEvent("its value is no JSON object")
    for name in ("stream", "type", "id"):
        _text(found, name)
    version, schema = found.get("version"), found.get("schema")
    if not _is_count(version):
        raise NotAnEvent("its version is no number from 1 on")
    if not _is_count(schema):
        raise NotAnEvent("its schema is no number from 1 on")
    for name in _IDS:
        if name in found:
            _text(found, name)
    data, metadata = found.get("data"), found.get("metadata", {})
    if not isinstance(data, dict) or not isinstance(metadata, dict):
        raise NotAnEvent("its data or metadata are no JSON object")
    sealed = _sealed(found.get("personal"))
    if sealed is not None:
        data |= dict.fromkeys(sealed.fields) if key is None else unseal(key, found["id"], sealed.text)
    return Event(
        found["stream"],
        found["version"],
        found["type"],
        data,
        found["id"],
        _time(found.get("time")),
        found["schema"],
        found.get("command_id"),
        found.get("causation_id"),
        found.get("correlation_id"),
        metadata,
        partition,
        offset,
        () if sealed is None else sealed.fields,
        sealed is not None and key is None,
        None if sealed is None else sealed.key_id,
    )


class _Sealed(NamedTuple):
    """Personal data as a record has them."""

    key_id: str
    fields: tuple[str, ...]
    text: str


def _sealed(found: object) -> _Sealed | None:
    match found:
        case None:
            return None
        case {"key": str(key_id), "fields": [*fields], "sealed": str(text)} if all(
            isinstance(each, str) for each in fields
        ):
            return _Sealed(key_id, tuple(fields), text)
    raise NotAnEvent("its personal data have no key, fields or sealed text")


def _text(found: dict[str, Any], name: str) -> None:
    value = found.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME or not value.isprintable():
        raise NotAnEvent(f"its {name} is no text of 1 to {MAX_NAME} characters")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MAX_VERSION


def _time(value: object) -> int:
    try:
        moment = datetime.fromisoformat(value)  # type: ignore[arg-type]
        return round(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1000)
    except (TypeError, ValueError, OverflowError):
        raise NotAnEvent("its time is not ISO 8601") from None
