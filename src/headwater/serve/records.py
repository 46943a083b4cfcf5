"""Records in a request's body: the text of each JSON object, as it came.

The text goes to the topic unchanged, so a number keeps its digits; it is parsed only to be checked.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from headwater.serve.errors import HttpError
from headwater.views import encode

__all__ = ["MAX_RECORDS", "Record", "key_of", "raw_columns", "split", "split_lines"]

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
    except json.JSONDecodeError as error:
        raise HttpError(400, f"the body is no JSON: {error.msg} at character {error.pos}") from None
    except (ValueError, RecursionError):
        text = (
            "the body is no JSON that is taken here: it nests too deep, or a number has thousands of digits"
        )
        raise HttpError(400, text) from None
    if _skip(text, end) != len(text):
        raise HttpError(400, "the body goes on behind its JSON: send one object, or an array of them")
    return records


def split_lines(body: bytes, before: int = 0) -> list[Record]:
    """Return the object on each line; empty lines are passed over. `before` lines came already.

    >>> [record.text for record in split_lines(b'{"a": 1}\\n\\n{"a": 2}\\n')]
    ['{"a": 1}', '{"a": 2}']
    """
    records: list[Record] = []
    for line in body.split(b"\n"):
        if line.strip():
            try:
                found = split(line)
            except HttpError as error:
                raise HttpError(error.status, f"record {before + len(records)}: {error}") from None
            if len(found) != 1 or line.lstrip()[:1] == b"[":
                raise HttpError(400, f"record {before + len(records)} is an array: a line is one object")
            records += found
        if len(records) > MAX_RECORDS:
            raise HttpError(413, f"a request holds at most {MAX_RECORDS} records: send fewer at once")
    return records


def key_of(record: Record, columns: Sequence[str]) -> bytes | None:
    """Return the key that columns of a record make up, where there are any."""
    if not columns:
        return None
    try:
        return encode([record.columns.get(column) for column in columns]).encode()
    except UnicodeEncodeError:
        raise HttpError(400, f"{' and '.join(columns)}, the key, holds half a surrogate pair") from None


def raw_columns(row: str) -> dict[str, str]:
    """Return the columns of a row that is a JSON object, each as the text that it is written in.

    >>> raw_columns('{"a": 1.10, "b": [1, 2]}')
    {'a': '1.10', 'b': '[1, 2]'}
    """
    found: dict[str, str] = {}
    at = _skip(row, _skip(row, 0) + 1)
    while row[at : at + 1] == '"':
        name, at = _DECODER.raw_decode(row, at)
        at = _skip(row, _skip(row, at) + 1)
        _, end = _DECODER.raw_decode(row, at)
        found[name] = row[at:end]
        at = _skip(row, end)
        at = _skip(row, at + 1) if row[at : at + 1] == "," else at
    return found


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
