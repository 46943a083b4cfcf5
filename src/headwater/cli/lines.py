"""Records as lines of text: what `headwater produce` reads and `headwater consume` writes.

A JSON line is an object with `key`, `value`, `headers`, `partition` and `timestamp`, each optional on the way
in. Bytes are text where they are UTF-8; where they are not, and on request, `{"base64": "..."}`.
A value that is any other JSON is taken as its text.
"""

from __future__ import annotations

import base64
import binascii
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any, TypeVar

from headwater.cli.output import note
from headwater.cli.positions import parse_time

_MARK = "base64"
_FIELDS = {"key", "value", "headers", "partition", "timestamp"}
_MAX_PARTITION = 2**31 - 1


Read = TypeVar("Read")


class BadLine(ValueError):
    """A line that is no record, and why."""


def read_lines(source: IO[bytes], parse: Callable[[bytes], Read], what: str) -> Iterator[Read]:
    """Yield what each line stands for; `what` says to a person at a terminal what becomes of a line."""
    if source is sys.stdin.buffer and sys.stdin.isatty():
        note(f"Each line becomes a {what}; Ctrl-D ends.")
    for number, text in enumerate(source, 1):
        text = text.rstrip(b"\r\n") if text.endswith(b"\r\n") else text.rstrip(b"\n")
        try:
            yield parse(text)
        except BadLine as error:
            raise BadLine(f"line {number}: {error}") from None


@dataclass(frozen=True, slots=True)
class Line:
    """A record to be produced."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int = -1
    timestamp: int = 0
    """Milliseconds since the epoch; 0 for the moment it is produced."""


def encode_bytes(data: bytes | None) -> str | dict[str, str] | None:
    """Return bytes as JSON shows them."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {_MARK: base64.b64encode(data).decode()}


def decode_bytes(value: Any) -> bytes | None:
    """Return the bytes that JSON shows."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise BadLine(f"half a surrogate pair in {value!r}") from error
    if isinstance(value, dict) and value.keys() == {_MARK}:
        try:
            return base64.b64decode(value[_MARK], validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise BadLine(f"{value[_MARK]!r} is not base64") from error
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def parse_json(text: bytes, now_ms: int) -> Line:
    """Return the record of a JSON line."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadLine(f"not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise BadLine('not a JSON object like {"key": "k", "value": "v"}')
    if surplus := fields.keys() - _FIELDS - _WRITTEN_ONLY:
        raise BadLine(f"no record has a {min(surplus)!r}: there are {', '.join(sorted(_FIELDS))}")
    return Line(
        decode_bytes(fields.get("value")),
        decode_bytes(fields.get("key")),
        _headers(fields.get("headers")),
        _partition(fields.get("partition")),
        _timestamp(fields.get("timestamp"), now_ms),
    )


# What `consume` writes of a record and only the broker can say is passed over, so that one's output is
# the other's input.
_WRITTEN_ONLY = {"topic", "offset"}


def _headers(value: Any) -> tuple[tuple[str, bytes | None], ...]:
    if value is None:
        return ()
    # A name may come twice in a record, which an object cannot say: pairs can.
    pairs = value.items() if isinstance(value, dict) else value
    try:
        return tuple((_text(name), decode_bytes(content)) for name, content in pairs)
    except (TypeError, ValueError) as error:
        if isinstance(error, BadLine):
            raise
        raise BadLine('headers are an object or a list of pairs, like {"trace": "17"}') from error


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _partition(value: Any) -> int:
    if value is None:
        return -1
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_PARTITION:
        raise BadLine(f"{value!r} is not a partition")
    return value


def _timestamp(value: Any, now_ms: int) -> int:
    if value is None:
        return 0
    is_number = isinstance(value, int) and not isinstance(value, bool)
    time_ms = parse_time(str(value), now_ms) if is_number or isinstance(value, str) else None
    if time_ms is None:
        raise BadLine(f"{value!r} is not a time, like 1763236800000 or 2026-11-15T20:00:00Z")
    return time_ms


def parse_plain(text: bytes, separator: bytes | None, headers: tuple[tuple[str, bytes], ...]) -> Line:
    """Return the record of a line of text, its key before the separator where there is one."""
    if separator is None:
        return Line(text, headers=headers)
    key, found, value = text.partition(separator)
    if not found:
        raise BadLine(f"no key separator {separator.decode(errors='replace')!r} in it")
    return Line(value, key, headers)


def as_json(
    topic: str,
    partition: int,
    offset: int,
    timestamp: int | None,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes | None]],
) -> str:
    """Return a consumed record as a JSON line, which `parse_json` reads."""
    pairs = [(name, encode_bytes(content)) for name, content in headers]
    names = {name for name, _ in pairs}
    document = {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": timestamp,
        "key": encode_bytes(key),
        "value": encode_bytes(value),
        "headers": dict(pairs) if len(names) == len(pairs) else [list(pair) for pair in pairs],
    }
    return json.dumps(document, ensure_ascii=False)
