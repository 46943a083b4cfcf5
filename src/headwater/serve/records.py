"""Records in a request's body: the text of each JSON object, as it came.

The text goes to the topic unchanged, so a number keeps its digits; it is parsed only to be checked.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from headwater.serve.errors import HttpError

__all__ = ["Record", "split"]

MAX_RECORDS = 10_000
"""In one request: each costs far more memory on its way than its text."""

_SPACE = " \t\n\r"


class Record(NamedTuple):
    """A record's text and what it says."""

    text: str
    columns: dict[str, Any]


def split(body: bytes) -> list[Record]:
    """Return the one object, or those in the array, that a body holds; or raise `HttpError`.

    >>> [record.text for record in split(b'[{"a": 1.10}, {"a": 2}]')]
    ['{"a": 1.10}', '{"a": 2}']
    """
    try:
        text = body.decode()
        start = _skip(text, 0)
        if text[start : start + 1] != "[":
            record, end = _record(text, start, "the body")
            records = [record]
        else:
            records, end = _array(text, start + 1)
    except UnicodeDecodeError as error:
        raise HttpError(400, f"the body is not UTF-8: byte {error.start}") from None
    except (json.JSONDecodeError, RecursionError) as error:
        where = f": {error.msg} at character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        raise HttpError(400, f"the body is no JSON{where}") from None
    if _skip(text, end) != len(text):
        raise HttpError(400, "the body goes on behind its JSON: send one object, or an array of them")
    return records


def _array(text: str, at: int) -> tuple[list[Record], int]:
    records: list[Record] = []
    at = _skip(text, at)
    if text[at : at + 1] == "]":
        return records, at + 1
    while True:
        record, at = _record(text, _skip(text, at), f"element {len(records)} of the array")
        records.append(record)
        if len(records) > MAX_RECORDS:
            raise HttpError(413, f"a request holds at most {MAX_RECORDS} records: send fewer at once")
        at = _skip(text, at)
        match text[at : at + 1]:
            case ",":
                at += 1
            case "]":
                return records, at + 1
            case _:
                raise json.JSONDecodeError("Expecting ',' or ']'", text, at)


def _record(text: str, at: int, what: str) -> tuple[Record, int]:
    columns, end = _DECODER.raw_decode(text, at)
    if not isinstance(columns, dict):
        raise HttpError(400, f"{what} is no JSON object: send one object, or an array of them")
    return Record(text[at:end], columns), end


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def _refuse_constant(name: str) -> float:
    raise HttpError(400, f"{name} is no JSON number")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
