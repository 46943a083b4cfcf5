"""How fast rows get into a view and out of it, in SQLite, in Postgres and in Redis."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Self

import psycopg
import redis

from bench.brokers import Broker
from bench.figures import HAND, HEADWATER, AtLeast, Better, Figure, Floor
from bench.scenarios.base import Scale, Scenario
from headwater.testing.postgres import RealPostgres
from headwater.testing.redis import RealRedis
from headwater.views import Change, ViewDefinition, open_store

ROWS = 100_000
COMMITS = 6
READS = 20_000

Rows = list[tuple[str, str]]


class ViewCommit(Scenario):
    """A view of 100,000 rows of which each commit changes all, and reads of single rows by key.

    By hand, the same rows go into a table of key and row with `INSERT … ON CONFLICT DO UPDATE` through `executemany`,
    durably as well, and without a change feed, epochs, or a look at what has really changed; in Redis into a hash, with
    one HSET in a transaction.
    """

    name = "view-commit"
    sides = (HAND, HEADWATER)
    figures = (
        Figure("view-sqlite", "view commits, SQLite", "rows/s", Better.HIGHER, (Floor(ROWS, "rows/s"),), peer=HAND),
        Figure("view-sqlite-reads", "view reads by key, SQLite", "rows/s", Better.HIGHER, peer=HAND),
        Figure(
            "view-postgres", "view commits, Postgres", "rows/s", Better.HIGHER,
            (AtLeast(1.0, HAND), Floor(ROWS, "rows/s")), peer=HAND,
        ),
        Figure("view-postgres-reads", "view reads by key, Postgres", "rows/s", Better.HIGHER, peer=HAND),
        Figure("view-redis", "view commits, Redis", "rows/s", Better.HIGHER, peer=HAND),
        Figure("view-redis-reads", "view reads by key, Redis", "rows/s", Better.HIGHER, peer=HAND),
    )  # fmt: skip

    def __init__(self, side: str = HEADWATER) -> None:
        self.side = side

    def on(self, side: str) -> Self:
        """Return the scenario for one side."""
        return type(self)(side)

    def run(self, broker: Broker, scratch: Path, scale: Scale) -> Mapping[str, float]:
        """Commit and read in a new file and in a new database; the broker is not asked."""
        batches = [_rows(scale.of(ROWS), number) for number in range(COMMITS)]
        sqlite = _ours if self.side == HEADWATER else _sqlite_by_hand
        postgres = _ours if self.side == HEADWATER else _postgres_by_hand
        in_redis = _ours if self.side == HEADWATER else _redis_by_hand
        figures: dict[str, float] = {}
        with RealPostgres() as server, RealRedis() as memory:
            for name, measure, url in (
                ("sqlite", sqlite, f"sqlite:///{scratch}/views.db"),
                ("postgres", postgres, server.database("views")),
                ("redis", in_redis, memory.url()),
            ):
                committed, read = measure(url, batches)
                figures |= {f"view-{name}": committed, f"view-{name}-reads": read}
        return figures


def _rows(count: int, version: int) -> Rows:
    return [
        (
            f"user-{n:08}",
            json.dumps(
                {"user": f"user-{n:08}", "country": "DE", "orders": n % 7 + version, "amount": n * 1.5}
            ),
        )
        for n in range(count)
    ]


def _ours(url: str, batches: list[Rows]) -> tuple[float, float]:
    with open_store(url) as store:
        store.define(ViewDefinition("users", ("user",)))

        def commit(epoch: int, rows: Rows) -> None:
            store.commit("bench", epoch, "users", (Change(key, row) for key, row in rows))

        return _measured(batches, commit, lambda key: store.row("users", key))


def _sqlite_by_hand(url: str, batches: list[Rows]) -> tuple[float, float]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE users (key TEXT PRIMARY KEY, row TEXT NOT NULL) WITHOUT ROWID")

        def commit(_: int, rows: Rows) -> None:
            with db:
                db.executemany(
                    "INSERT INTO users VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET row = excluded.row", rows
                )

        def read(key: str) -> object:
            return db.execute("SELECT row FROM users WHERE key = ?", (key,)).fetchone()

        return _measured(batches, commit, read)


def _postgres_by_hand(url: str, batches: list[Rows]) -> tuple[float, float]:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("CREATE TABLE users (key text PRIMARY KEY, row json NOT NULL)")

        def commit(_: int, rows: Rows) -> None:
            with db.transaction(), db.cursor() as cursor:
                cursor.executemany(
                    "INSERT INTO users VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET row = excluded.row",
                    rows,
                )

        def read(key: str) -> object:
            return db.execute("SELECT row::text FROM users WHERE key = %s", (key,)).fetchone()

        return _measured(batches, commit, read)


def _redis_by_hand(url: str, batches: list[Rows]) -> tuple[float, float]:
    with closing(redis.Redis.from_url(url)) as client:

        def commit(_: int, rows: Rows) -> None:
            with client.pipeline(transaction=True) as transaction:
                transaction.hset("users", mapping=dict(rows))
                transaction.execute()

        return _measured(batches, commit, lambda key: client.hget("users", key))


def _measured(
    batches: list[Rows], commit: Callable[[int, Rows], None], read: Callable[[str], object]
) -> tuple[float, float]:
    """Return rows committed in a second, the median of all commits but the first, and rows read in a second."""
    seconds = []
    for number, rows in enumerate(batches):
        began = time.perf_counter()
        commit(number, rows)
        seconds.append(time.perf_counter() - began)
    keys = [key for key, _ in batches[0]]
    wanted = [keys[n * 7919 % len(keys)] for n in range(READS)]
    began = time.perf_counter()
    for key in wanted:
        read(key)
    return len(batches[0]) / median(seconds[1:]), READS / (time.perf_counter() - began)
