"""Records of a table's topic into rows by key.

| | flat | Debezium's envelope, also within `schema` and `payload` |
|---|---|---|
| a row | the value | `after`, of the operations `c`, `u` and `r` |
| a delete | a null value | `d`, and the null value that follows it |

A row is known by the text of its key columns (`headwater.views.keys`). A delete has nothing but its record's key: a
JSON object of the key columns, as capture and Debezium write it, or that same text, as our streams do. Of a stream, the
record's key is therefore taken for rows, too: whatever types its columns have, row and delete are about the same.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, InvalidOperation
from json.decoder import WHITESPACE  # type: ignore[attr-defined]
from typing import Any, cast

from headwater.app.types import DataType, Field, Scalar
from headwater.app.types import Decimal as DecimalType
from headwater.core import json_types
from headwater.core.json_types import DECODER, Misfit, whole
from headwater.derived.change import Row
from headwater.derived.errors import Unreadable
from headwater.views.keys import NULL, encode

__all__ = ["Decoder", "KeyText", "parse_object"]

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_FLOATS = ("float", "double")
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_MOST_DIGITS = 400
"""More than any column of numbers has; a few letters may stand for millions."""
_skip: Callable[[str, int], Any] = WHITESPACE.match
_MISSING = object()
_BEFORE, _AFTER = '{"before":', ',"after":'
_ENDING = re.compile(r'"op":"([crud])","ts_ms":[0-9]+\}\Z')
_ENDING_SIZE = 60

Member = tuple[Any, int, int]
"""A value in a JSON text, with where it begins and ends."""


class KeyText:
    """Makes the text that a row is known by."""

    def __init__(self, key: Sequence[str], fields: Sequence[Field] = ()) -> None:
        types = {field.name: field.type for field in fields}
        self.columns = tuple(key)
        self._types = [types.get(name) for name in key]

    def of_row(self, row: Mapping[str, Any]) -> str:
        """Return the key of a row."""
        values = []
        for name, kind in zip(self.columns, self._types, strict=True):
            value = row.get(name)
            if value is None:
                raise Unreadable(f"the row has no {name}, which is its key")
            try:
                values.append(_canonical(value, kind))
            except Misfit as error:
                raise Unreadable(f"{name}: {error}") from None
        return encode(values)

    def of_record(self, key: bytes | None) -> str:
        """Return the key of the row that a record's key names."""
        if key is None:
            raise Unreadable("a delete without a key: nobody can tell of which row")
        [*kinds] = self._types
        try:
            text = key.decode()
        except UnicodeDecodeError:
            if len(kinds) == 1 and kinds[0] == Scalar("binary"):
                return base64.b64encode(key).decode()
            raise Unreadable("a delete whose key is neither JSON nor text") from None
        named = self._object(text)
        if named is not None:
            return self.of_row(named)
        parts = [text] if len(kinds) == 1 else text.split(",")
        if len(parts) != len(kinds):
            raise Unreadable(
                f"a delete whose key is {text[:100]!r}, and not one of {' and '.join(self.columns)}"
            )
        if len(parts) == 1:
            return encode([_from_text(text, kinds[0])])
        return encode(
            [
                None if part == NULL else _from_text(part.replace("%2C", ",").replace("%25", "%"), kind)
                for part, kind in zip(parts, kinds, strict=True)
            ]
        )

    def _object(self, text: str) -> Mapping[str, Any] | None:
        if not text.lstrip().startswith("{"):
            return None
        try:
            document = DECODER.decode(text)
        except (ValueError, RecursionError):
            return None
        if isinstance(document.get("payload"), dict):
            document = document["payload"]
        return document if all(name in document for name in self.columns) else None


class Decoder:
    """Reads the records of one table."""

    def __init__(self, envelope: str, key: KeyText, *, keyed_by_text: bool = False) -> None:
        """Read an envelope; with `keyed_by_text`, the records' keys are the texts that rows are known by."""
        self._debezium = envelope == "debezium"
        self._key = key
        self._keyed_by_text = keyed_by_text

    def read(self, key: bytes | None, value: bytes | None) -> tuple[str, Row | None] | None:
        """Return the row that a record is about and what became of it; None for one that is about none."""
        if value is None:
            return _text_of(key) if self._keyed_by_text else self._key.of_record(key), None
        try:
            text = value.decode()
            return self._enveloped(key, text) if self._debezium else self._row(key, text)
        except (ValueError, RecursionError) as error:
            raise Unreadable(f"not JSON: {error}") from None

    def _row(self, key: bytes | None, text: str) -> tuple[str, Row]:
        at = _skip(text, 0).end()
        values, end = DECODER.raw_decode(text, at)
        if not isinstance(values, dict):
            raise Unreadable("the row is no JSON object")
        _check_end(text, end)
        known_by = _text_of(key) if self._keyed_by_text else self._key.of_row(values)
        return known_by, Row(text[at:end], values)

    def _enveloped(self, key: bytes | None, text: str) -> tuple[str, Row | None] | None:
        members = _quick_members(text) or _members(text)
        payload = members.get("payload")
        if payload is not None:
            if payload[0] is None:
                return self._key.of_record(key), None
            text = text[payload[1] : payload[2]]
            members = _members(text)
        op = members.get("op", (_MISSING, 0, 0))[0]
        if op == "m":  # a message of the database, about no row
            return None
        if op == "d":
            before = members.get("before", (None, 0, 0))[0]
            if key is None and isinstance(before, dict):
                return self._key.of_row(before), None
            return self._key.of_record(key), None
        if op == "t":
            raise Unreadable("the table was truncated, and its rows are not named: build the store anew")
        if op not in ("c", "u", "r"):
            said = (
                "not in Debezium's envelope: there is no op" if op is _MISSING else f"the operation is {op!r}"
            )
            raise Unreadable(said)
        after, start, end = members.get("after", (None, 0, 0))
        if not isinstance(after, dict):
            raise Unreadable(f"the operation {op} without the row after it")
        return self._key.of_row(after), Row(text[start:end], after)


def parse_object(text: str | bytes) -> dict[str, Any]:
    """Return a JSON object without losing a digit of it."""
    return cast(dict[str, Any], json_types.parse(text))


def _quick_members(text: str) -> dict[str, Member] | None:
    """Return what is needed of an envelope that is as capture and Debezium write it, without reading all of it.

    A document that ends in the operation, the time and one brace has both at its outermost: a quote inside of a
    string would have a backslash before it.
    """
    ending = _ENDING.search(text, max(0, len(text) - _ENDING_SIZE))
    if ending is None or not text.startswith(_BEFORE):
        return None
    before, end = DECODER.raw_decode(text, len(_BEFORE))
    if not text.startswith(_AFTER, end):
        return None
    start = end + len(_AFTER)
    after, end = DECODER.raw_decode(text, start)
    return {"before": (before, 0, 0), "after": (after, start, end), "op": (ending[1], 0, 0)}


def _members(text: str) -> dict[str, Member]:
    """Return the members of a JSON object, each with where its value begins and ends."""
    at = _skip(text, 0).end()
    if text[at : at + 1] != "{":
        raise Unreadable("not in Debezium's envelope: no JSON object")
    found: dict[str, Member] = {}
    at = _skip(text, at + 1).end()
    while text[at : at + 1] == '"':
        name, at = DECODER.raw_decode(text, at)
        at = _skip(text, at).end()
        if text[at : at + 1] != ":":
            raise Unreadable(f"not JSON: no colon behind {name!r}")
        start = _skip(text, at + 1).end()
        value, end = DECODER.raw_decode(text, start)
        found[name] = value, start, end
        at = _skip(text, end).end()
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1).end()
    if text[at : at + 1] != "}":
        raise Unreadable("not JSON: the object does not end")
    _check_end(text, at + 1)
    return found


def _check_end(text: str, at: int) -> None:
    if _skip(text, at).end() != len(text):
        raise Unreadable("not JSON: there is more behind the object")


def _text_of(key: bytes | None) -> str:
    if key is None:
        raise Unreadable("a record of a stream without a key: nobody can tell about which row")
    try:
        return key.decode()
    except UnicodeDecodeError:  # a column of bytes, which are the key as they are
        return base64.b64encode(key).decode()


def _canonical(value: Any, kind: DataType | None) -> Any:
    """Return a key's value as it is written whoever wrote it."""
    match value:
        case {"start": start}:  # a window, which stands for its start
            return _canonical(start, None)
        case list() | dict():
            return json_types.string(value)
        case bool() | float() | None:
            return value
        case str() if not _is_numeric(kind):
            return whole(value)
    try:
        number = Decimal(value)
        if abs(number.adjusted()) > _MOST_DIGITS:
            return str(value)
        if isinstance(kind, DecimalType):
            return format(_EXACT.normalize(number), "f")
        if isinstance(kind, Scalar) and kind.name in _INTEGERS and number == int(value):
            return int(value)
        if isinstance(kind, Scalar) and kind.name in _FLOATS:
            return float(value)
    except (InvalidOperation, ValueError, OverflowError):
        pass  # SQLite keeps a text in a column of numbers: it is told apart as it is
    if isinstance(value, Decimal):
        return format(value, "f")
    return whole(value) if isinstance(value, str) else value


def _is_numeric(kind: DataType | None) -> bool:
    return isinstance(kind, DecimalType) or (isinstance(kind, Scalar) and kind.name in (*_INTEGERS, *_FLOATS))


def _from_text(text: str, kind: DataType | None) -> Any:
    if kind == Scalar("boolean") and text in ("true", "false"):
        return text == "true"
    return _canonical(text, kind)
