"""A view store in Redis."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from headwater.core.clock import Clock, SystemClock
from headwater.views.errors import StoreUnavailable, TokenGone, UnknownView
from headwater.views.redis import catalog
from headwater.views.redis.catalog import NAMES, View
from headwater.views.redis.merge import expired, merge, stored_rows
from headwater.views.redis.outbox import RedisOutbox
from headwater.views.redis.select import select
from headwater.views.redis.server import PREFIX, Server, name_of
from headwater.views.store import (
    KEEP_CHANGES,
    SHADOW,
    Change,
    Query,
    Snapshot,
    StoredChange,
    StoredRow,
    Version,
    ViewDefinition,
    ViewStore,
    shadow_of,
)
from headwater.views.times import history_begins

__all__ = ["RedisStore"]

_CALM_TRIES = 5
_STATUSES = f"{PREFIX}statuses"
T = TypeVar("T")


class RedisStore(ViewStore):
    """Views in a Redis server, not a cluster of them; see `Server` for its keys and its transactions."""

    def __init__(self, url: str, *, keep_changes: int = KEEP_CHANGES, clock: Clock | None = None) -> None:
        self._keep = keep_changes
        self._clock = clock or SystemClock()
        self._server = Server(url)
        self.identity = self._server.identity
        self.outbox = RedisOutbox(self._server)

    def define(self, view: ViewDefinition) -> None:
        """Make a view where there is none, or give it what is asked for."""

        def prepare(client: Any, transaction: Any) -> None:
            catalog.define(client, transaction, view, self._clock.wall_ms())

        self._server.transact([name_of(view.name)], prepare)

    def definitions(self) -> list[ViewDefinition]:
        """Return every view, by name."""
        with self._server.using() as client:
            return catalog.definitions(client)

    def epoch(self, query: str) -> int:
        """Return the last epoch that a query committed, or -1."""
        with self._server.using() as client:
            return _epoch(client, query)

    def commit(self, query: str, epoch: int, view: str, changes: Iterable[Change]) -> bool:
        """Apply an epoch in one transaction; false where it was committed before."""
        given = {key.encode(): row for key, row in changes}

        def prepare(client: Any, transaction: Any) -> bool:
            known = catalog.find(client, view)
            if epoch <= _epoch(client, query):
                return False
            now = self._now(known)
            ran_out = {key: None for key in expired(client, known, now=now) if key not in given}
            merge(client, transaction, known, ran_out | given, now=now, keep=self._keep)
            transaction.set(_epoch_of(query), epoch)
            return True

        watched = [name_of(view), _epoch_of(query)]
        try:
            return self._server.transact(watched, prepare)
        except StoreUnavailable:
            # The answer may be lost of a commit that was made: its epoch tells.
            return self._server.transact(watched, prepare)

    def reset(self, query: str, view: str) -> None:
        """Let a query start over."""

        def prepare(client: Any, transaction: Any) -> None:
            known = catalog.find(client, view)
            gone = dict.fromkeys(client.hkeys(known.key("rows")))
            merge(client, transaction, known, gone, now=self._now(known), keep=self._keep)
            transaction.delete(_epoch_of(query))

        self._server.transact([name_of(view), _epoch_of(query)], prepare)

    def expire(self) -> int:
        """Delete the rows whose time has run out."""
        gone = 0
        for view in self.definitions():
            if view.ttl_ms is not None:
                gone += self._server.transact([name_of(view.name)], self._expiring(view.name))
        return gone

    def _expiring(self, view: str) -> Callable[[Any, Any], int]:
        def prepare(client: Any, transaction: Any) -> int:
            known = catalog.find(client, view)
            now = self._now(known)
            keys = dict.fromkeys(expired(client, known, now=now))
            return merge(client, transaction, known, keys, now=now, keep=self._keep) if keys else 0

        return prepare

    def shadow(self, view: str, query: str) -> str:
        """Make an empty shadow of a view."""

        def prepare(client: Any, transaction: Any) -> None:
            known = catalog.find(client, view)
            shadow = ViewDefinition(shadow_of(view), known.definition.key)
            catalog.forget(client, transaction, shadow.name)
            transaction.delete(_epoch_of(query))
            catalog.create(transaction, shadow)

        self._server.transact([name_of(shadow_of(view))], prepare)
        return shadow_of(view)

    def swap(self, view: str, *, query: str, shadow_query: str) -> int:
        """Let a shadow's rows take the place of the view's."""

        def prepare(client: Any, transaction: Any) -> int:
            live, shadow = catalog.find(client, view), catalog.find(client, shadow_of(view))
            keys = client.hkeys(shadow.key("rows"))
            wanted: dict[bytes, str | None] = dict.fromkeys(client.hkeys(live.key("rows")))
            wanted |= {key: row.row for key, row in stored_rows(client, shadow, keys).items() if row}
            changed = merge(client, transaction, live, wanted, now=self._now(live), keep=self._keep)
            epoch = _epoch(client, shadow_query)
            catalog.forget(client, transaction, shadow.name)
            transaction.delete(_epoch_of(shadow_query))
            transaction.set(_epoch_of(query), epoch)
            return changed

        watched = [name_of(view), name_of(shadow_of(view)), _epoch_of(query), _epoch_of(shadow_query)]
        return self._server.transact(watched, prepare)

    def discard(self, view: str, shadow_query: str) -> None:
        """Forget the shadow of a view."""

        def prepare(client: Any, transaction: Any) -> None:
            catalog.forget(client, transaction, shadow_of(view))
            transaction.delete(_epoch_of(shadow_query))

        self._server.transact([name_of(shadow_of(view))], prepare)

    def has_shadow(self, view: str) -> bool:
        """Tell whether there is a shadow of a view."""
        with self._server.using() as client:
            return bool(client.exists(name_of(shadow_of(view))))

    def history(self, view: str, key: str, limit: int = 100) -> list[Version]:
        """Return what a row is and was, newest first."""

        def work(client: Any, known: View) -> list[Version]:
            begins = history_begins(known.definition, known.history_since, self._clock.wall_ms())
            name = key.encode()
            current = stored_rows(client, known, [name])[name]
            found = [Version(current.at, None, current.row)] if current is not None else []
            numbers = client.zrevrangebylex(
                known.key("past:keys"), b"(" + name + b"\x01", b"[" + name + b"\0", 0, limit
            )
            ids = [int(each[-20:]) for each in numbers]
            for value in client.hmget(known.key("past"), ids) if ids else []:
                _, since, until, row = json.loads(value)
                if until > begins:
                    found.append(Version(since, until, row))
            return found[:limit]

        return self._calmly(view, work)

    def read(self, view: str, query: Query = Query()) -> Snapshot:  # noqa: B008  # it is frozen
        """Return rows, and the token that belongs to them."""

        def work(client: Any, known: View) -> Snapshot:
            if query.at is not None:
                now = self._clock.wall_ms()
                history_begins(known.definition, known.history_since, now, asked=query.at)
            return Snapshot(select(client, known, query), known.token)

        def left_out(client: Any, known: View) -> Snapshot:
            """Leave out the rows that change while they are read: they are in the feed behind the token."""
            until = known.token if query.until is None else query.until
            return Snapshot(select(client, known, replace(query, until=until)), known.token)

        return self._calmly(view, work, otherwise=left_out)

    def row(self, view: str, key: str) -> StoredRow | None:
        """Return a row, if there is one."""
        with self._server.using() as client:
            value = client.hget(name_of(view, "rows"), key)
            if value is None:
                if not client.exists(name_of(view)):
                    raise UnknownView(view)
                return None
            found = catalog.unpack(value)
            return StoredRow(key, found.row, found.token)

    def count(self, view: str) -> int:
        """Return how many rows a view has."""
        with self._server.using() as client:
            return int(client.hlen(catalog.find(client, view).key("rows")))

    def token(self, view: str) -> int:
        """Return the token of a view's last change; 0 before the first."""
        with self._server.using() as client:
            return catalog.find(client, view).token

    def tokens(self) -> dict[str, int]:
        """Return the token of every view's last change."""
        with self._server.using() as client:
            names = [name.decode() for name in client.zrange(NAMES, 0, -1)]
            names = [name for name in names if not name.startswith(SHADOW)]
            with client.pipeline(transaction=True) as asking:
                for name in names:
                    asking.hget(name_of(name), "token")
                return {name: int(token or 0) for name, token in zip(names, asking.execute(), strict=True)}

    def changes(self, view: str, since: int, limit: int = 1000) -> list[StoredChange]:
        """Return the changes behind a token, or raise `TokenGone`."""

        def work(client: Any, known: View) -> list[StoredChange]:
            if not known.floor <= since <= known.token:
                raise TokenGone(view, since)
            found = client.xrange(
                known.key("feed"), min=f"{since + 1}-0", max=f"{known.token}-0", count=limit
            )
            entries = [_change(id_, entry) for id_, entry in found]
            if entries and entries[0].token != since + 1:  # cut since we asked where it begins
                raise TokenGone(view, since)
            return entries

        return self._calmly(view, work, otherwise=work)

    def version(self) -> int:
        """Return a number that differs after any process committed."""
        with self._server.using() as client:
            return int(client.get(f"{PREFIX}version") or 0)

    def put_status(self, name: str, status: str) -> None:
        """Keep what a pipeline says of itself, as JSON."""
        with self._server.using() as client, client.pipeline(transaction=True) as transaction:
            transaction.hset(_STATUSES, name, status)
            transaction.incr(f"{PREFIX}version")
            transaction.execute()

    def statuses(self) -> dict[str, str]:
        """Return what pipelines last said, by name."""
        with self._server.using() as client:
            found = client.hgetall(_STATUSES)
        return {name.decode(): found[name].decode() for name in sorted(found)}

    def close(self) -> None:
        """Hang up."""
        self._server.close()

    def _calmly(
        self,
        view: str,
        work: Callable[[Any, View], T],
        otherwise: Callable[[Any, View], T] | None = None,
    ) -> T:
        """Do what takes several commands while nobody commits, seen by the token; `otherwise` where all do."""
        with self._server.using() as client:
            for _ in range(_CALM_TRIES):
                known = catalog.find(client, view)
                result = work(client, known)
                if catalog.find(client, view) == known:
                    return result
            return (otherwise or work)(client, catalog.find(client, view))

    def _now(self, view: View) -> int:
        """Return the time of a commit, which is not before that of the last one whatever the clock says."""
        return max(self._clock.wall_ms(), view.at)


def _epoch_of(query: str) -> str:
    return f"{PREFIX}epoch:{query}"


def _epoch(client: Any, query: str) -> int:
    found = client.get(_epoch_of(query))
    return -1 if found is None else int(found)


def _change(id_: bytes, entry: dict[bytes, bytes]) -> StoredChange:
    row = entry.get(b"r")
    return StoredChange(
        int(id_.partition(b"-")[0]), entry[b"k"].decode(), None if row is None else row.decode()
    )
