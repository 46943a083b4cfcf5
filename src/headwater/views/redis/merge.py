"""The commit of a view in Redis: what really changes is found here, and written in one transaction."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from headwater.views.conditions import value_of
from headwater.views.outbox import ALERT
from headwater.views.redis.catalog import Stored, View, unpack
from headwater.views.redis.fields import member
from headwater.views.redis.server import chunks
from headwater.views.store import SHADOW

__all__ = ["expired", "merge", "stored_rows"]

Rows = dict[bytes, Stored | None]

_FEED = """
local number = tonumber(ARGV[1])
for at = 2, #ARGV, 2 do
  local id = string.format('%.0f-0', number)
  if ARGV[at + 1] == '' then
    redis.call('XADD', KEYS[1], id, 'k', ARGV[at])
  else
    redis.call('XADD', KEYS[1], id, 'k', ARGV[at], 'r', ARGV[at + 1])
  end
  number = number + 1
end
"""
"""Adds to a feed the keys and rows that follow the first number; a deleted row is empty.

One XADD a row is most of a commit's time when the client sends them one by one.
"""


def stored_rows(client: Any, view: View, keys: Iterable[bytes]) -> Rows:
    """Return the rows of keys; None for one that has none."""
    found: Rows = {}
    for some in chunks(list(keys)):
        values = client.hmget(view.key("rows"), some)
        found.update((key, unpack(value) if value else None) for key, value in zip(some, values, strict=True))
    return found


def expired(client: Any, view: View, *, now: int) -> list[bytes]:
    """Return the keys of the rows whose time has run out."""
    ttl = view.definition.ttl_ms
    if ttl is None:
        return []
    return list(client.zrangebyscore(view.key("written"), "-inf", now - ttl))


def merge(
    client: Any, transaction: Any, view: View, changes: Mapping[bytes, str | None], *, now: int, keep: int
) -> int:
    """Queue what changes make of a view, and return how many rows really change."""
    keys = sorted(changes)
    before = stored_rows(client, view, keys)
    renewed = {
        key: old
        for key in keys
        if (old := before[key]) is not None and changes[key] == old.row and view.definition.ttl_ms is not None
    }
    changed = [key for key in keys if changes[key] != (old.row if (old := before[key]) else None)]
    after: Rows = {}
    for token, key in enumerate(changed, view.token + 1):
        row = changes[key]
        after[key] = None if row is None else Stored(token, now, now, row)
    _write_rows(transaction, view, before, after)
    for key, old in renewed.items():
        transaction.hset(view.key("rows"), key, Stored(old.token, old.at, now, old.row).pack())
    if view.definition.ttl_ms is not None:
        _write_times(transaction, view, [*after, *renewed], after, now)
    for column in view.definition.indexes:
        _write_index(transaction, view, column, before, after)
    if view.definition.history_ms is not None:
        _remember(client, transaction, view, {key: before[key] for key in changed}, now)
    token, floor = view.token + len(changed), view.floor
    if view.name.startswith(SHADOW):
        floor = token
    else:
        _write_feed(transaction, view, [(key, changes[key]) for key in changed])
        if not view.name.startswith(ALERT) and token - keep > floor:  # an alert's is cut when it was taken
            floor = token - keep
            transaction.xtrim(view.key("feed"), minid=f"{floor + 1}-0", approximate=False)
    transaction.hset(view.key(), mapping={"token": token, "floor": floor, "at": now if changed else view.at})
    # Others who prepare a change of this view have to notice, also where no row has changed.
    transaction.hincrby(view.key(), "commits", 1)
    return len(changed)


def _write_rows(transaction: Any, view: View, before: Rows, after: Rows) -> None:
    put = [(key, new.pack()) for key, new in after.items() if new is not None]
    for some in chunks(put):
        transaction.hset(view.key("rows"), mapping=dict(some))
    for added in chunks([key for key, _ in put if before[key] is None]):
        transaction.zadd(view.key("keys"), dict.fromkeys(added, 0))
    for deleted in chunks([key for key, new in after.items() if new is None]):
        transaction.hdel(view.key("rows"), *deleted)
        transaction.zrem(view.key("keys"), *deleted)


def _write_feed(transaction: Any, view: View, changed: list[tuple[bytes, str | None]]) -> None:
    number = view.token + 1
    for some in chunks(changed):
        told = (part for key, row in some for part in (key, row or b""))
        transaction.eval(_FEED, 1, view.key("feed"), number, *told)
        number += len(some)


def _write_times(transaction: Any, view: View, keys: list[bytes], after: Rows, now: int) -> None:
    gone = {key for key, new in after.items() if new is None}
    for some in chunks([key for key in keys if key not in gone]):
        transaction.zadd(view.key("written"), dict.fromkeys(some, now))
    for some in chunks(list(gone)):
        transaction.zrem(view.key("written"), *some)


def _write_index(transaction: Any, view: View, column: str, before: Rows, after: Rows) -> None:
    name = view.key(f"field:{column}")
    old = [member(value_of(row.row, column), key) for key in after if (row := before[key]) is not None]
    for some in chunks(old):
        transaction.zrem(name, *some)
    new = [member(value_of(row.row, column), key) for key, row in after.items() if row is not None]
    for some in chunks(new):
        transaction.zadd(name, dict.fromkeys(some, 0))


def _remember(client: Any, transaction: Any, view: View, before: Rows, now: int) -> None:
    """Queue what rows were before a change, and the end of what has been remembered for long enough."""
    past, until, by_key = view.key("past"), view.key("past:until"), view.key("past:keys")
    kept = [(key, old) for key, old in before.items() if old is not None and old.at < now]
    for some in chunks(kept):
        told = {old.token: json.dumps([key.decode(), old.at, now, old.row]) for key, old in some}
        transaction.hset(past, mapping=told)
        transaction.zadd(until, {str(old.token): now for _, old in some})
        transaction.zadd(by_key, {b"%s\0%020d" % (key, old.token): 0 for key, old in some})
    history = view.definition.history_ms or 0
    for old_ones in chunks(list[bytes](client.zrangebyscore(until, "-inf", now - history))):
        values = client.hmget(past, old_ones)
        keys = [json.loads(value)[0].encode() for value in values]
        transaction.hdel(past, *old_ones)
        transaction.zrem(until, *old_ones)
        transaction.zrem(
            by_key, *(b"%s\0%020d" % (key, int(n)) for key, n in zip(keys, old_ones, strict=True))
        )
