"""Definitions with their log, as tests use them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from headwater.broker.queues.definitions import Definitions, Route, VirtualHost
from headwater.broker.state import StateRecord
from headwater.core.amqp import AmqpError, ReplyCode
from headwater.record.amqp.tables import Table

ME, OTHER = 1, 2
"""Two connections."""


class Declared:
    """Applies every record at once and keeps the log of them."""

    def __init__(self) -> None:
        self._ids = count(1)
        self.log: list[StateRecord] = []
        self.definitions = self._empty()

    def _empty(self) -> Definitions:
        return Definitions(lambda: next(self._ids).to_bytes(16, "big"))

    def apply(self, records: list[StateRecord]) -> list[StateRecord]:
        for record in records:
            self.definitions.replay(record)
        self.log += records
        return records

    def restart(self, log: list[StateRecord] | None = None) -> None:
        """Read the log from its start, then forget what does not survive."""
        self.definitions = replayed(self._empty(), self.log if log is None else log)
        self.apply(self.definitions.forget_transient())

    def compacted(self) -> list[StateRecord]:
        """Return what compaction leaves of the log."""
        newest = {record.key: offset for offset, record in enumerate(self.log)}
        kept = [self.log[offset] for offset in sorted(newest.values())]
        return [record for record in kept if record.value is not None]

    def exchange(self, name: str, kind: str = "direct", *, vhost: str = "/", **options: Any) -> None:
        self.apply(self.definitions.declare_exchange(vhost, name, kind, **options))

    def queue(self, name: str, *, owner: int = ME, vhost: str = "/", **options: Any) -> None:
        self.apply(self.definitions.declare_queue(vhost, name, owner=owner, **options))

    def bind(
        self, source: str, destination: str, key: str = "", arguments: Table | None = None, **options: Any
    ) -> list[StateRecord]:
        return self.apply(self.definitions.bind("/", source, destination, "queue", key, arguments, **options))

    def bind_exchange(self, source: str, destination: str, key: str = "") -> list[StateRecord]:
        return self.apply(self.definitions.bind("/", source, destination, "exchange", key))

    def unbind(
        self, source: str, destination: str, key: str = "", arguments: Table | None = None, **options: Any
    ) -> list[StateRecord]:
        return self.apply(
            self.definitions.unbind("/", source, destination, "queue", key, arguments, **options)
        )

    def route(
        self, exchange: str, key: str = "", headers: Table | None = None, *, vhost: str = "/", **options: Any
    ) -> Route:
        return self.definitions.route(vhost, exchange, key, lambda: headers or {}, **options)

    def reached(
        self, exchange: str, key: str = "", headers: Table | None = None, **options: Any
    ) -> list[str]:
        """Return the names of the queues that a message gets to, sorted, and each as often as it is there."""
        return sorted(queue.name for queue in self.route(exchange, key, headers, **options).queues)


def replayed(definitions: Definitions, log: list[StateRecord]) -> Definitions:
    for record in log:
        definitions.replay(record)
    return definitions


def state_of(definitions: Definitions) -> dict[str, object]:
    """Return all that is declared, to be compared."""

    def of(vhost: VirtualHost) -> object:
        bindings = dict(vhost.bindings_by_key)
        assert list(vhost.bindings) == list(bindings.values())
        return dict(vhost.exchanges), dict(vhost.queues), bindings

    return {name: of(vhost) for name, vhost in definitions.vhosts.items()}


def refused(code: ReplyCode, text: str, attempt: Callable[[], object]) -> None:
    """Assert that an attempt is refused with this code and this very text."""
    with pytest.raises(AmqpError) as caught:
        attempt()
    assert (caught.value.code, caught.value.text) == (code, text)
