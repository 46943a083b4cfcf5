"""The event stores of a server: opened when they are first asked for, closed with it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from headwater.core.urls import KafkaUrl
from headwater.events import EventStore, Unavailable

__all__ = ["EventStores"]

_DEADLINE_SECONDS = 5.0
"""How long a request waits for a broker that is away before it is answered 503."""


class EventStores:
    """The stores by name. Thread-safe."""

    def __init__(self, broker: KafkaUrl | None, names: Sequence[str], directory: Path) -> None:
        self.names = frozenset(names)
        self._broker = broker
        self._directory = directory
        self._lock = threading.Lock()
        self._stores: dict[str, EventStore] = {}

    def open(self, name: str) -> EventStore:
        """Return a store; raise where its broker does not let it be opened."""
        with self._lock:
            if name not in self._stores:
                if self._broker is None:
                    raise Unavailable("no broker is given: start with --broker kafka://HOST:PORT")
                self._stores[name] = EventStore(
                    self._broker, name, directory=self._directory, deadline_seconds=_DEADLINE_SECONDS
                )
            return self._stores[name]

    def close(self) -> None:
        """Finish what was handed in, and close all stores."""
        with self._lock:
            for store in self._stores.values():
                store.close()
            self._stores.clear()
