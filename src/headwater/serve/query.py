"""What a request asks of a view: filters, order, fields and the place to go on from.

country=DE                  a column's value; `null` for rows without one
revenue[gte]=10             lt, lte, gt, gte
country[in]=DE,FR           one of several; a comma inside a value is written `\\,`
order=-revenue  limit=10    newest, largest, first
fields=country,revenue      the columns that come
cursor=…                    the page behind another, as its `next` says
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from starlette.datastructures import QueryParams

from headwater.serve.errors import HttpError
from headwater.serve.parameters import count, one_of
from headwater.serve.tokens import read_token
from headwater.views import Condition, Query, StoredRow, ViewStore
from headwater.views.conditions import cursor_value

__all__ = ["MAX_ROWS", "Selection", "cursor", "page_query", "selection"]

MAX_ROWS = 10_000
MAX_CONDITIONS = 20
MAX_VALUES = 1000
_PAGE = ("limit", "after", "order", "token", "at", "cursor", "fields", "wait", "timeout")
_FEED = ("since", "wait", "limit", "slow", "fields")
_CONDITION = re.compile(r"(.+)\[([a-z]+)\]", re.DOTALL)
_COMPARES = ("lt", "lte", "gt", "gte", "in")


@dataclass(frozen=True)
class Selection:
    """Which rows, and which of their columns: what a live feed is shared by."""

    where: tuple[tuple[str, str], ...] = ()
    conditions: tuple[Condition, ...] = ()
    fields: tuple[str, ...] | None = None

    @property
    def filters(self) -> bool:
        """Whether there are rows that are not asked for."""
        return bool(self.where or self.conditions)

    def query(self, **options: Any) -> Query:
        """Return the query for the rows."""
        return Query(where=dict(self.where), conditions=self.conditions, **options)


def selection(given: QueryParams, *, feed: bool = False) -> Selection:
    """Return the filter and the fields of a request, or raise `HttpError`."""
    ours = _FEED if feed else _PAGE
    where, conditions = [], []
    for name in given:
        value = one_of(given, name)
        if name in ours:
            continue
        found = _CONDITION.fullmatch(name)
        _check_column(found[1] if found else name)
        if found is None:
            where.append((name, value))
        else:
            conditions.append(_condition(found[1], found[2], value))
    if len(where) + len(conditions) > MAX_CONDITIONS:
        raise HttpError(400, f"there are at most {MAX_CONDITIONS} conditions in a request")
    fields = given.get("fields")
    return Selection(
        tuple(sorted(where)),
        tuple(sorted(conditions)),
        tuple(dict.fromkeys(filter(None, fields.split(",")))) if fields is not None else None,
    )


def page_query(store: ViewStore, view: str, given: QueryParams, chosen: Selection) -> Query:
    """Return the query for a page of rows, or raise `HttpError`."""
    order = given.get("order")
    if order is not None:
        if "after" in given:
            raise HttpError(400, "order is the name of a column, and does not go together with after")
        if not order.removeprefix("-") or '"' in order or not all(order.removeprefix("-").split(".")):
            raise HttpError(400, f"order is the name of a column, and {order!r} is none")
    query = chosen.query(
        order=order.removeprefix("-") if order else None,
        descending=bool(order and order.startswith("-")),
        after=given.get("after"),
        until=read_token(store, view, given["token"]) if "token" in given else None,
        at=_moment(given),
        limit=count(given, "limit", 1000, least=1, most=MAX_ROWS),
    )
    return query if "cursor" not in given else _behind(store, view, query, given)


def cursor(query: Query, last: StoredRow, token: str | None) -> str:
    """Return what a page's `next` says: where the page ended, and the state that it belongs to."""
    place = [json.dumps(token), json.dumps(last.key)]
    if query.order is not None:
        value = cursor_value(last.row, query.order)
        place.append(str(value) if isinstance(value, Decimal) else json.dumps(value))
    return base64.urlsafe_b64encode(f"[{','.join(place)}]".encode()).decode().rstrip("=")


def _behind(store: ViewStore, view: str, query: Query, given: QueryParams) -> Query:
    if "after" in given or "token" in given:
        raise HttpError(400, "a cursor says where to go on by itself: leave out after and token")
    bad = HttpError(400, "this is no cursor for this query: take the address in an answer's `next` as it is")
    text = given["cursor"]
    try:
        place = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), parse_float=Decimal)
    except (ValueError, RecursionError):
        raise bad from None
    if not isinstance(place, list) or len(place) != (2 if query.order is None else 3):
        raise bad
    token, key, *value = place
    if not isinstance(key, str) or not isinstance(token, str | None):
        raise bad
    if value and (isinstance(value[0], bool) or not isinstance(value[0], str | int | float | Decimal | None)):
        raise bad
    until = None if token is None else read_token(store, view, token)
    return replace(query, after=key, after_value=value[0] if value else None, until=until)


def _condition(column: str, compare: str, text: str) -> Condition:
    if compare not in _COMPARES:
        known = ", ".join(f"[{each}]" for each in _COMPARES)
        raise HttpError(400, f"{column}[{compare}] is no condition: there are {known}")
    if compare != "in":
        return Condition(column, compare, (text,))
    values = [each.replace("\\,", ",") for each in re.split(r"(?<!\\),", text)]
    if len(values) > MAX_VALUES:
        raise HttpError(400, f"{column}[in] names at most {MAX_VALUES} values")
    return Condition(column, compare, tuple(values))


def _check_column(name: str) -> None:
    if '"' in name or "\0" in name or not all(name.split(".")):
        raise HttpError(400, f"{name!r} is no name of a column")


def _moment(given: QueryParams) -> int | None:
    """Return the moment that `at` names, in milliseconds."""
    text = given.get("at")
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise HttpError(400, f"at={text} is no time: write one like 2026-01-31T14:00:00Z") from None
    if moment.tzinfo is None:
        raise HttpError(400, f"at={text} has no time zone: write it like {moment.isoformat()}Z, which is UTC")
    try:
        return int(moment.timestamp() * 1000)
    except (OverflowError, ValueError):
        raise HttpError(400, f"at={text} is beyond what a time can be here") from None
