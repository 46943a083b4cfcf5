"""The outbox of a view store in Redis."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from headwater.views.outbox import AT_ONCE, KEEP_ROWS, Delivery, Outbox, Pacing
from headwater.views.pacing import Entry, Incident, group_of, pace
from headwater.views.redis.catalog import View, find
from headwater.views.redis.merge import stored_rows
from headwater.views.redis.server import Server, chunks, name_of

__all__ = ["RedisOutbox"]


class RedisOutbox(Outbox):
    """Deliveries beside the views: each by its token, in order of time while they wait."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def take(self, view: str, limit: int = 1000, *, pacing: Pacing = AT_ONCE, now: float = 0.0) -> int:
        """Turn the next entries of an alert's feed, and groups whose quiet time is over, into deliveries."""

        def prepare(client: Any, transaction: Any) -> int:
            known = find(client, view)
            found = client.xrange(known.key("feed"), min=f"{known.taken + 1}-0", count=limit)
            over = client.zrangebyscore(
                known.key("incidents:until"), "-inf", pacing.due(now), start=0, num=limit
            )
            if not found and not over:
                return 0
            entries = [
                Entry(_token(id_), entry[b"k"].decode(), entry[b"r"].decode())
                for id_, entry in found
                if b"r" in entry
            ]
            groups = {name.decode() for name in over}
            if pacing.throttle is not None:
                groups |= {group_of(pacing, entry.row) for entry in entries}
            paced = pace(pacing, now, _incidents(client, known, sorted(groups)), entries)
            for delivery in paced.deliveries:
                _put(transaction, known, delivery)
            for name, incident in paced.incidents.items():
                _put_incident(transaction, known, name, incident)
            if found:
                taken = _token(found[-1][0])
                _forget_rows(client, transaction, known, taken - KEEP_ROWS)
                transaction.hset(known.key(), "taken", taken)
            return len(found) + len(over)

        return self._server.transact([name_of(view), name_of(view, "incidents")], prepare)

    def quiet_until(self, view: str) -> float | None:
        """Return when the next quiet time of a group ends, if there is one."""
        with self._server.using() as client:
            known = find(client, view)
            first = client.zrange(known.key("incidents:until"), 0, 0, withscores=True)
            return float(first[0][1]) if first else None

    def waiting(self, view: str, limit: int = 1000) -> list[Delivery]:
        """Return the deliveries that are to be tried, soonest first."""
        with self._server.using() as client:
            known = find(client, view)
            return _read(client, known, client.zrange(known.key("deliveries:waiting"), 0, limit - 1))

    def dead(self, view: str, limit: int = 1000) -> list[Delivery]:
        """Return the deliveries that were given up, newest first."""
        with self._server.using() as client:
            known = find(client, view)
            return _read(client, known, client.zrevrange(known.key("deliveries:dead"), 0, limit - 1))

    def counts(self, view: str) -> tuple[int, int]:
        """Return how many messages wait, taken or not, and how many were given up."""
        with self._server.using() as client:
            known = find(client, view)
            untaken, after = 0, known.taken
            while found := client.xrange(known.key("feed"), min=f"{after + 1}-0", count=5000):
                untaken += sum(b"r" in entry for _, entry in found)
                after = _token(found[-1][0])
            waiting = client.zcard(known.key("deliveries:waiting"))
            held = client.scard(known.key("incidents:held"))
            return untaken + waiting + held, client.zcard(known.key("deliveries:dead"))

    def delivered(self, view: str, tokens: Sequence[int]) -> None:
        """Forget deliveries that arrived."""

        def prepare(client: Any, transaction: Any) -> None:
            known = find(client, view)
            for some in chunks([_member(token) for token in tokens]):
                transaction.hdel(known.key("deliveries"), *some)
                transaction.zrem(known.key("deliveries:waiting"), *some)
                transaction.zrem(known.key("deliveries:dead"), *some)

        self._server.transact([name_of(view)], prepare)

    def failed(self, view: str, tokens: Sequence[int], *, error: str, next_at: float | None) -> None:
        """Note that a try failed."""

        def prepare(client: Any, transaction: Any) -> None:
            known = find(client, view)
            for old in _read(client, known, [_member(token).encode() for token in tokens]):
                tried = old._replace(tries=old.tries + 1, next_at=next_at or 0.0, error=error)
                _put(transaction, known, tried, dead=next_at is None)

        self._server.transact([name_of(view, "deliveries")], prepare)

    def redrive(self, view: str) -> int:
        """Try those again that were given up."""

        def prepare(client: Any, transaction: Any) -> int:
            known = find(client, view)
            given_up = _read(client, known, client.zrange(known.key("deliveries:dead"), 0, -1))
            for old in given_up:
                _put(transaction, known, old._replace(tries=0, next_at=0.0))
            return len(given_up)

        return self._server.transact([name_of(view, "deliveries")], prepare)


def _put(transaction: Any, view: View, delivery: Delivery, *, dead: bool = False) -> None:
    member = _member(delivery.token)
    to, out = ("dead", "waiting") if dead else ("waiting", "dead")
    transaction.hset(view.key("deliveries"), member, json.dumps(delivery))
    transaction.zadd(view.key(f"deliveries:{to}"), {member: 0 if dead else delivery.next_at})
    transaction.zrem(view.key(f"deliveries:{out}"), member)


def _read(client: Any, view: View, members: list[bytes]) -> list[Delivery]:
    found: list[Delivery] = []
    for some in chunks(members):
        values = client.hmget(view.key("deliveries"), some)
        found += [Delivery(*json.loads(value)) for value in values if value]
    return found


def _incidents(client: Any, view: View, names: list[str]) -> dict[str, Incident]:
    found: dict[str, Incident] = {}
    for some in chunks(names):
        for name, value in zip(some, client.hmget(view.key("incidents"), some), strict=True):
            if value:
                found[name] = Incident(*json.loads(value))
    return found


def _put_incident(transaction: Any, view: View, name: str, incident: Incident | None) -> None:
    if incident is None:
        transaction.hdel(view.key("incidents"), name)
        transaction.zrem(view.key("incidents:until"), name)
        transaction.srem(view.key("incidents:held"), name)
    else:
        transaction.hset(view.key("incidents"), name, json.dumps(incident))
        transaction.zadd(view.key("incidents:until"), {name: incident.until})
        (transaction.sadd if incident.held else transaction.srem)(view.key("incidents:held"), name)


def _forget_rows(client: Any, transaction: Any, view: View, until: int) -> None:
    """Cut an alert's rows and feed, which would grow with every message ever sent."""
    if until <= view.floor:
        return
    old = client.xrange(view.key("feed"), min=f"{view.floor + 1}-0", max=f"{until}-0")
    rows = stored_rows(client, view, {entry[b"k"] for _, entry in old})
    for some in chunks([key for key, row in rows.items() if row is not None and row.token <= until]):
        transaction.hdel(view.key("rows"), *some)
        transaction.zrem(view.key("keys"), *some)
    transaction.xtrim(view.key("feed"), minid=f"{until + 1}-0", approximate=False)
    transaction.hset(view.key(), "floor", until)


def _member(token: int) -> str:
    """Return a token in a form that sorts by number, for deliveries of the same time."""
    return f"{token:020}"


def _token(id_: bytes) -> int:
    return int(id_.partition(b"-")[0])
