"""What goes along when something is deleted: bindings, and auto-delete exchanges with their last binding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from headwater.broker.queues import records
from headwater.broker.queues.exchanges import Binding, Exchange
from headwater.broker.queues.queue_definition import QueueDefinition
from headwater.broker.queues.virtual_host import VirtualHost
from headwater.broker.state import StateRecord


class Removal:
    """Collects the records that remove something and what hangs on it; the virtual host stays as it is."""

    def __init__(self, vhost: VirtualHost) -> None:
        self._vhost = vhost
        self._gone: dict[bytes, None] = {}
        self._taken: Counter[str] = Counter()
        """How many bindings each exchange, as their source, has lost."""
        self._left: list[Exchange] = []
        """Exchanges to be removed whose bindings are still to be followed."""

    def records(self) -> list[StateRecord]:
        """Return the tombstones."""
        return [StateRecord(key, None) for key in self._gone]

    def queue(self, queue: QueueDefinition) -> None:
        """Remove a queue."""
        self._all(self._vhost.bindings_to("queue", queue.name).items())
        self._gone[records.queue_key(queue.vhost, queue.name)] = None

    def exchange(self, exchange: Exchange) -> None:
        """Remove an exchange."""
        self._left.append(exchange)
        self._follow()

    def binding(self, key: bytes, binding: Binding) -> None:
        """Remove a binding."""
        self._all([(key, binding)])

    def _all(self, bindings: Iterable[tuple[bytes, Binding]]) -> None:
        for key, binding in bindings:
            self._take(key, binding)
        self._follow()

    def _take(self, key: bytes, binding: Binding) -> None:
        if key in self._gone:
            return
        self._gone[key] = None
        self._taken[binding.source] += 1
        if self._taken[binding.source] < len(self._vhost.bindings_from(binding.source)):
            return
        exchange = self._vhost.exchanges.get(binding.source)
        if exchange is not None and exchange.auto_delete:
            self._left.append(exchange)

    def _follow(self) -> None:
        while self._left:
            exchange = self._left.pop()
            key = records.exchange_key(exchange.vhost, exchange.name)
            if key in self._gone:
                continue
            self._gone[key] = None
            for bindings in (
                self._vhost.bindings_from(exchange.name),
                self._vhost.bindings_to("exchange", exchange.name),
            ):
                for found in bindings.items():
                    self._take(*found)
