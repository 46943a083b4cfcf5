"""A `Query` over the rows of a view in Redis: by key, by an index, or by looking at all of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from headwater.views.columns import parts
from headwater.views.conditions import is_behind, matches, sort_key, value_of
from headwater.views.redis.catalog import View, unpack
from headwater.views.redis.fields import candidates
from headwater.views.redis.merge import stored_rows
from headwater.views.redis.server import CHUNK, chunks
from headwater.views.store import Query, StoredRow

__all__ = ["select"]


def select(client: Any, view: View, query: Query) -> list[StoredRow]:
    """Return rows."""
    for column in (*query.where, *(condition.column for condition in query.conditions), query.order):
        if column is not None:
            parts(column)
    if query.at is not None:
        return _arranged(_as_of(client, view, query.at), query)
    indexes = view.definition.indexes
    indexed = next((column for column in query.where if column in indexes), None)
    if indexed is not None:
        keys = _with_value(client, view.key(f"field:{indexed}"), query.where[indexed])
        return _arranged(_rows(client, view, iter(keys)), query)
    if query.order is None:
        found = _rows(client, view, _by_key(client, view, query))
    elif query.order in indexes:
        found = _rows(client, view, _by_index(client, view.key(f"field:{query.order}"), query))
    else:
        return _arranged(_all(client, view), query)
    return list(islice(filter(_wanted(query), found), query.limit))


def _wanted(query: Query) -> Callable[[StoredRow], bool]:
    def wanted(found: StoredRow) -> bool:
        if query.until is not None and found.token > query.until:
            return False
        if query.after is not None and query.order is not None:
            if not is_behind(value_of(found.row, query.order), found.key, query):
                return False
        elif query.after is not None:
            key, after = found.key.encode(), query.after.encode()
            if not (key < after if query.descending else key > after):
                return False
        return not (query.where or query.conditions) or matches(json.loads(found.row), query)

    return wanted


def _arranged(rows: Iterator[StoredRow], query: Query) -> list[StoredRow]:
    """Return the rows that a query asks for of rows in any order."""
    wanted = sorted(filter(_wanted(query), rows), key=lambda found: found.key.encode())
    if query.order is not None:
        column = query.order
        wanted.sort(key=lambda found: sort_key(value_of(found.row, column)), reverse=query.descending)
    elif query.descending:
        wanted.reverse()
    return wanted[: query.limit]


def _rows(client: Any, view: View, keys: Iterator[bytes]) -> Iterator[StoredRow]:
    while some := list(islice(keys, CHUNK)):
        for key, stored in stored_rows(client, view, some).items():
            if stored is not None:
                yield StoredRow(key.decode(), stored.row, stored.token)


def _all(client: Any, view: View) -> Iterator[StoredRow]:
    # A scan may give a field twice.
    for key, value in dict(client.hscan_iter(view.key("rows"), count=CHUNK)).items():
        stored = unpack(value)
        yield StoredRow(key.decode(), stored.row, stored.token)


def _by_key(client: Any, view: View, query: Query) -> Iterator[bytes]:
    bound = None if query.after is None else query.after.encode()
    yield from _range(client, view.key("keys"), bound, descending=query.descending, first=query.limit)


def _range(
    client: Any, name: str, bound: bytes | None, *, descending: bool, first: int = CHUNK
) -> Iterator[bytes]:
    """Yield the members of a sorted set behind a bound, a page at a time."""
    size = max(1, min(first, CHUNK))
    while True:
        if descending:
            some = client.zrevrangebylex(name, b"+" if bound is None else b"(" + bound, b"-", 0, size)
        else:
            some = client.zrangebylex(name, b"-" if bound is None else b"(" + bound, b"+", 0, size)
        yield from some
        if len(some) < size:
            return
        bound = some[-1]


def _with_value(client: Any, name: str, text: str) -> list[bytes]:
    """Return the keys of the rows with a value, as far as an index knows."""
    keys: list[bytes] = []
    for value in candidates(text):
        found = client.zrangebylex(name, b"[" + value + b"\0", b"(" + value + b"\x01")
        keys += [each.partition(b"\0")[2] for each in found]
    return keys


def _by_index(client: Any, name: str, query: Query) -> Iterator[bytes]:
    """Yield keys by value; equal ones by key, also where values descend."""
    group: list[bytes] = []
    current = None
    for each in _range(client, name, None, descending=query.descending):
        value, _, key = each.partition(b"\0")
        if not query.descending:
            yield key
            continue
        if value != current:
            yield from reversed(group)
            group, current = [], value
        group.append(key)
    yield from reversed(group)


def _as_of(client: Any, view: View, at: int) -> Iterator[StoredRow]:
    """Yield the rows as they were: those that have not changed since, and what the others were then."""
    for key, value in dict(client.hscan_iter(view.key("rows"), count=CHUNK)).items():
        stored = unpack(value)
        if stored.at <= at:
            yield StoredRow(key.decode(), stored.row, stored.token)
    for some in chunks(client.zrangebyscore(view.key("past:until"), f"({at}", "+inf")):
        for number, value in zip(some, client.hmget(view.key("past"), some), strict=True):
            if value is None:
                continue  # cut meanwhile; the reader notices, and reads again
            name, since, _, row = json.loads(value)
            if since <= at:
                yield StoredRow(name, row, int(number))
