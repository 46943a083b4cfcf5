"""The text of a row's key, the same whether Python or Spark builds it.

One key column is its value as plain text, so that `/views/users/u17` reads well. Several are joined by
commas, with `,` and `%` inside a value percent-encoded. A value is written as JSON writes it, strings
without their quotes; a window stands for its start; a timestamp is in UTC with milliseconds, or with
microseconds where it has some; null is `%0`, which no encoded value is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

__all__ = ["NULL", "encode", "key_of"]

NULL = "%0"

_ESCAPES = str.maketrans({"%": "%25", ",": "%2C"})


def encode(values: Sequence[Any]) -> str:
    """Return the key text of the values of a row's key columns.

    >>> encode(["u17"]), encode([{"start": "2026-01-01T00:00:00.000Z", "end": "…"}, "a,b"])
    ('u17', '2026-01-01T00:00:00.000Z,a%2Cb')
    """
    if len(values) == 1:
        return _text(values[0])
    return ",".join(NULL if value is None else _text(value).translate(_ESCAPES) for value in values)


def key_of(row: Mapping[str, Any], columns: Sequence[str]) -> str:
    """Return the key text of a row that JSON was read from.

    >>> key_of({"country": "DE", "revenue": 7}, ["country"])
    'DE'
    """
    return encode([row.get(column) for column in columns])


def _text(value: Any) -> str:
    match value:
        case str():
            return value
        case None:
            return NULL
        case datetime():
            at = value.astimezone(UTC).replace(tzinfo=None)
            return at.isoformat(timespec="microseconds" if at.microsecond % 1000 else "milliseconds") + "Z"
        case date():
            return value.isoformat()
        case Mapping() if "start" in value:
            return _text(value["start"])
        case _:
            return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
