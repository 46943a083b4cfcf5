"""The views of a Redis: what is known of each, and the indexes that it asks for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from headwater.views.columns import parts
from headwater.views.conditions import value_of
from headwater.views.errors import UnknownView, ViewError
from headwater.views.redis.fields import member
from headwater.views.redis.server import PREFIX, chunks, name_of
from headwater.views.store import SHADOW, ViewDefinition

__all__ = ["NAMES", "Stored", "View", "create", "define", "definitions", "find", "forget", "unpack"]

NAMES = f"{PREFIX}views"


@dataclass(frozen=True)
class View:
    """A view as Redis knows it."""

    definition: ViewDefinition
    token: int = 0
    floor: int = 0
    taken: int = 0
    at: int = 0
    history_since: int | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return self.definition.name

    def key(self, part: str = "") -> str:
        """Return the name of one of its keys."""
        return name_of(self.name, part)


@dataclass(frozen=True)
class Stored:
    """A row as Redis holds it."""

    token: int
    at: int
    written: int
    row: str

    def pack(self) -> bytes:
        """Return it as one value."""
        return f"{self.token} {self.at} {self.written} {self.row}".encode()


def unpack(value: bytes) -> Stored:
    """Return what `pack` made one value of."""
    token, at, written, row = value.decode().split(" ", 3)
    return Stored(int(token), int(at), int(written), row)


def find(client: Any, name: str) -> View:
    """Return a view, or raise `UnknownView`."""
    found = client.hgetall(name_of(name))
    if not found:
        raise UnknownView(name)
    number = {field.decode(): int(value) for field, value in found.items() if field != b"definition"}
    told = json.loads(found[b"definition"])
    definition = ViewDefinition(
        name, tuple(told["key"]), told["ttl"], tuple(told["indexes"]), told["history"]
    )
    return View(
        definition,
        token=number.get("token", 0),
        floor=number.get("floor", 0),
        taken=number.get("taken", 0),
        at=number.get("at", 0),
        history_since=number.get("history_since"),
    )


def definitions(client: Any) -> list[ViewDefinition]:
    """Return every view but shadows, by name."""
    names = [name.decode() for name in client.zrange(NAMES, 0, -1)]
    return [find(client, name).definition for name in names if not name.startswith(SHADOW)]


def define(client: Any, transaction: Any, view: ViewDefinition, now: int) -> None:
    """Make a view, or give it what is asked for."""
    try:
        known = find(client, view.name)
    except UnknownView:
        known = View(ViewDefinition(view.name, view.key))
        create(transaction, known.definition)
    before = known.definition
    if before == view:
        return
    if before.key != view.key and client.hlen(known.key("rows")):
        raise ViewError(
            f"the view {view.name} holds rows by {', '.join(before.key)}, "
            f"not by {', '.join(view.key)}: give the view another name, or start its query over with --reset"
        )
    for column in view.indexes:
        parts(column)
    _put(transaction, view)
    if view.history_ms is None:
        transaction.delete(known.key("past"), known.key("past:until"), known.key("past:keys"))
        transaction.hdel(known.key(), "history_since")
    elif known.history_since is None:
        transaction.hset(known.key(), "history_since", now)
    _index(client, transaction, known, view)


def create(transaction: Any, view: ViewDefinition) -> None:
    """Make a view that is not there."""
    transaction.zadd(NAMES, {view.name: 0})
    _put(transaction, view)


def forget(client: Any, transaction: Any, name: str) -> None:
    """Remove a view with all that belongs to it, if there is one."""
    try:
        known = find(client, name)
    except UnknownView:
        return
    owned = ("", "rows", "keys", "feed", "written", "past", "past:until", "past:keys")
    out = ("deliveries", "deliveries:waiting", "deliveries:dead")
    quiet = ("incidents", "incidents:until", "incidents:held")
    fields = [f"field:{column}" for column in known.definition.indexes]
    transaction.unlink(*(known.key(part) for part in (*owned, *out, *quiet, *fields)))
    transaction.zrem(NAMES, name)


def _put(transaction: Any, view: ViewDefinition) -> None:
    told = {"key": view.key, "ttl": view.ttl_ms, "indexes": view.indexes, "history": view.history_ms}
    transaction.hset(name_of(view.name), "definition", json.dumps(told))


def _index(client: Any, transaction: Any, known: View, view: ViewDefinition) -> None:
    before = known.definition
    for column in set(before.indexes) - set(view.indexes):
        transaction.unlink(known.key(f"field:{column}"))
    if view.ttl_ms is None:
        transaction.unlink(known.key("written"))
    fresh = set(view.indexes) - set(before.indexes)
    timed = view.ttl_ms is not None and before.ttl_ms is None
    if not fresh and not timed:
        return
    rows = [(key, unpack(value)) for key, value in client.hscan_iter(known.key("rows"), count=1000)]
    for some in chunks(rows):
        for column in fresh:
            members = {member(value_of(stored.row, column), key): 0 for key, stored in some}
            transaction.zadd(known.key(f"field:{column}"), members)
        if timed:
            transaction.zadd(known.key("written"), {key: stored.written for key, stored in some})
