"""How long an order takes from being produced until a row that counts it can be read."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from confluent_kafka import Producer

from bench.clients import QUIET, require_delivered
from bench.spark.orders import FLUSH_SECONDS, PARTITIONS, TOPIC
from headwater.views import ViewStore

RATE = 1_000
USERS = 200
FIRST_ORDER = 1_000_000
POLL_SECONDS = 0.002
PATIENCE_SECONDS = 30.0


class Reader(ABC):
    """A view as somebody reads it who wants to know soon."""

    @abstractmethod
    def changed(self) -> Iterable[tuple[str, str]]:
        """Return users and the last order of each, for all rows that may have changed since the last call."""


class TableReader(Reader):
    """Reads the table that was written by hand, when a commit has changed it."""

    def __init__(self, file: Path) -> None:
        self._connection = sqlite3.connect(file, check_same_thread=False)
        self._version = -1

    def changed(self) -> Iterable[tuple[str, str]]:
        [version] = self._connection.execute("PRAGMA data_version").fetchone()
        if version == self._version:
            return ()
        self._version = version
        return self._connection.execute("SELECT user_id, last_order FROM spending").fetchall()

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()


class ViewReader(Reader):
    """Follows the change feed of a view."""

    def __init__(self, store: ViewStore, view: str) -> None:
        self._store = store
        self._view = view
        self._version = -1
        self._token = 0

    def changed(self) -> Iterable[tuple[str, str]]:
        version = self._store.version()
        if version == self._version:
            return ()
        self._version = version
        changes = self._store.changes(self._view, self._token, limit=100_000)
        if changes:
            self._token = changes[-1].token
        rows = (json.loads(change.row) for change in changes if change.row is not None)
        return [(row["user_id"], row["last_order"]) for row in rows]


class Stopwatch:
    """Produces orders at a steady rate and notes, of each, when a row that counts it was there."""

    def __init__(self, bootstrap: str, reader: Reader) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 0, "socket.nagle.disable": True, "log_level": QUIET}
        )
        self._reader = reader
        self._pending: defaultdict[str, deque[tuple[str, float]]] = defaultdict(deque)
        self._milliseconds: list[float] = []

    def latencies(self, orders: int) -> list[float]:
        """Produce that many orders, wait until all were seen, and return the milliseconds of each as they came."""
        sender = threading.Thread(target=self._send, args=(orders,))
        sender.start()
        deadline = time.monotonic() + orders / RATE + PATIENCE_SECONDS
        while len(self._milliseconds) < orders and time.monotonic() < deadline:
            self._look()
            time.sleep(POLL_SECONDS)
        sender.join()
        require_delivered(self._producer.flush(FLUSH_SECONDS))
        if len(self._milliseconds) < orders:
            raise TimeoutError(f"{orders - len(self._milliseconds)} of {orders} orders are not in the view")
        return self._milliseconds

    def _send(self, orders: int) -> None:
        began = time.perf_counter()
        for number in range(orders):
            # Sleeping until the next beat, not for a beat, so that a late one does not lower the rate.
            time.sleep(max(0.0, began + number / RATE - time.perf_counter()))
            key, user = str(FIRST_ORDER + number), str(number % USERS)
            placed_at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"
            value = f'{{"order_id":"{key}","user_id":"{user}","amount":1.25,"placed_at":"{placed_at}"}}'
            self._pending[user].append((key, time.perf_counter()))
            self._producer.produce(TOPIC, value, key, partition=int(user) % PARTITIONS)
            self._producer.poll(0)

    def _look(self) -> None:
        for user, last in self._reader.changed():
            pending = self._pending[user]
            now = time.perf_counter()
            while pending and pending[0][0] <= last:
                self._milliseconds.append((now - pending.popleft()[1]) * 1e3)
