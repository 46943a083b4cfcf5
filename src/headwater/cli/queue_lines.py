"""Messages as lines of JSON: what `headwater queues get` writes, and the `publish` commands read.

A line is an object with `body`, `headers`, `properties` and `routing_key`, each optional on the way in. Bytes
are text where they are UTF-8, and `{"base64": "..."}` where they are not. What only a broker can say of a
message is passed over, so that what one command writes another reads.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, fields
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from headwater.cli.lines import BadLine, decode_bytes, encode_bytes

if TYPE_CHECKING:
    from headwater.client.amqp import Delivery
    from headwater.record.amqp.properties import Properties

_MARK = "base64"
_FIELDS = {"body", "headers", "properties", "routing_key"}
_WRITTEN_ONLY = {"queue", "exchange", "redelivered"}
_NUMBERS = {"delivery_mode": 255, "priority": 255, "timestamp": 2**64 - 1}
TRANSIENT, PERSISTENT = 1, 2


@dataclass(frozen=True, slots=True)
class Draft:
    """A message to be published."""

    body: bytes
    properties: Properties
    routing_key: str | None = None


def plain(body: bytes, headers: dict[str, Any], delivery_mode: int) -> Draft:
    """Return a message that is a line of text."""
    from headwater.record.amqp.properties import Properties

    return Draft(body, Properties(headers=headers or None, delivery_mode=delivery_mode))


def parse(text: bytes, headers: dict[str, Any], delivery_mode: int) -> Draft:
    """Return the message of a JSON line; what the line says comes before what is given for all."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadLine(f"not JSON: {error}") from error
    if not isinstance(said, dict):
        raise BadLine('not a JSON object like {"body": "hello"}')
    if surplus := said.keys() - _FIELDS - _WRITTEN_ONLY:
        raise BadLine(f"no message has a {min(surplus)!r}: there are {', '.join(sorted(_FIELDS))}")
    own = said.get("headers") or {}
    if not isinstance(own, dict):
        raise BadLine('headers are an object, like {"trace": "17"}')
    key = said.get("routing_key")
    if key is not None and not isinstance(key, str):
        raise BadLine(f"{key!r} is no routing key: it is a text")
    properties = _properties(said.get("properties") or {}, delivery_mode)
    properties.headers = {**headers, **{name: _decode(value) for name, value in own.items()}} or None
    return Draft(decode_bytes(said.get("body")) or b"", properties, key)


def document(queue: str, delivery: Delivery) -> dict[str, Any]:
    """Return a message as JSON shows it; `parse` reads it back."""
    properties = delivery.properties
    set_ = {
        field.name: value
        for field in fields(properties)
        if field.name != "headers" and (value := getattr(properties, field.name)) is not None
    }
    return {
        "queue": queue,
        "exchange": delivery.exchange,
        "routing_key": delivery.routing_key,
        "redelivered": delivery.redelivered,
        "properties": set_,
        "headers": {name: _encode(value) for name, value in (properties.headers or {}).items()},
        "body": encode_bytes(delivery.body),
    }


def _properties(said: Any, delivery_mode: int) -> Properties:
    from headwater.record.amqp.properties import Properties

    names = {field.name for field in fields(Properties)} - {"headers"}
    if not isinstance(said, dict):
        raise BadLine('properties are an object, like {"content_type": "text/plain"}')
    if surplus := said.keys() - names:
        raise BadLine(f"no message has a property {min(surplus)!r}: there are {', '.join(sorted(names))}")
    for name, value in said.items():
        most = _NUMBERS.get(name)
        if most is None and not isinstance(value, str):
            raise BadLine(f"{name} is a text, and not {value!r}")
        if most is not None and (type(value) is not int or not 0 <= value <= most):
            raise BadLine(f"{name} is a number from 0 to {most}, and not {value!r}")
    values: dict[str, Any] = {"delivery_mode": delivery_mode, **said}
    return Properties(**values)


def _encode(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return {_MARK: base64.b64encode(value).decode()}
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, list):
        return [_encode(one) for one in value]
    if isinstance(value, dict):
        return {name: _encode(one) for name, one in value.items()}
    return value


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(one) for one in value]
    if isinstance(value, dict):
        if value.keys() == {_MARK}:
            return decode_bytes(value)
        return {name: _decode(one) for name, one in value.items()}
    return value
