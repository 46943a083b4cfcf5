"""A virtual host: its exchanges, its queues, and the bindings between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from headwater.broker.queues.exchanges import Binding, Exchange, predeclared
from headwater.broker.queues.matching import Destination, Matcher, Question, matcher_for
from headwater.broker.queues.names import DEFAULT_EXCHANGE, Kind, not_found
from headwater.broker.queues.queue_definition import QueueDefinition
from headwater.broker.queues.routing import Route, find_route

K = TypeVar("K")
N = TypeVar("N")
V = TypeVar("V")


class VirtualHost:
    """What is declared under one name; changed by replayed records alone.

    A log that compaction is half through may hold a binding and no longer, or not yet, what it binds: such a
    binding waits here and leads nowhere.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.exchanges: dict[str, Exchange] = predeclared(name)
        self.queues: dict[str, QueueDefinition] = {}
        self._owned: dict[int, dict[str, QueueDefinition]] = {}
        self.bindings_by_key: dict[bytes, Binding] = {}
        """By the keys of their records, which say all that there is to say of a binding."""
        self._from: dict[str, dict[bytes, Binding]] = {}
        self._to: dict[Destination, dict[bytes, Binding]] = {}
        self._matchers: dict[str, Matcher] = {
            exchange.name: matcher_for(exchange) for exchange in self.exchanges.values()
        }

    # What is there

    @property
    def bindings(self) -> Iterable[Binding]:
        """Every binding; those that the default exchange has to each queue by its name are not among them."""
        return self.bindings_by_key.values()

    def exchange(self, name: str) -> Exchange:
        """Return the exchange of that name, or raise NOT_FOUND."""
        found = self.exchanges.get(name)
        if found is None:
            raise not_found("exchange", name, self.name)
        return found

    def queue(self, name: str) -> QueueDefinition:
        """Return the queue of that name, or raise NOT_FOUND."""
        found = self.queues.get(name)
        if found is None:
            raise not_found("queue", name, self.name)
        return found

    def owned_by(self, owner: int) -> list[QueueDefinition]:
        """Return the exclusive queues of a connection."""
        return list(self._owned.get(owner, {}).values())

    def bindings_from(self, exchange: str) -> Mapping[bytes, Binding]:
        """Return the bindings whose source is this exchange, by their record keys."""
        return self._from.get(exchange, {})

    def bindings_to(self, kind: Kind, name: str) -> Mapping[bytes, Binding]:
        """Return the bindings that lead to this queue or exchange, by their record keys."""
        return self._to.get(Destination(kind, name), {})

    def route(self, exchange: Exchange, question: Question) -> Route:
        """Return where a message that was published to the exchange goes."""
        if exchange.name == DEFAULT_EXCHANGE and len(question.routing_keys) == 1:
            queue = self.queues.get(question.routing_keys[0])
            return Route() if queue is None else Route((queue,))
        return find_route(self.exchanges, self._matchers, self.queues, exchange, question)

    # Replay

    def put_exchange(self, exchange: Exchange) -> None:
        """Add an exchange, with the bindings that wait for it."""
        matcher = matcher_for(exchange)
        for binding in self.bindings_from(exchange.name).values():
            matcher.add(binding)
        self.exchanges[exchange.name] = exchange
        self._matchers[exchange.name] = matcher

    def drop_exchange(self, name: str) -> None:
        """Forget an exchange; its bindings have records of their own."""
        self.exchanges.pop(name, None)
        self._matchers.pop(name, None)

    def put_queue(self, queue: QueueDefinition) -> None:
        """Add a queue."""
        self.drop_queue(queue.name)
        self.queues[queue.name] = queue
        if queue.owner is not None:
            self._owned.setdefault(queue.owner, {})[queue.name] = queue

    def drop_queue(self, name: str) -> None:
        """Forget a queue; its bindings have records of their own."""
        queue = self.queues.pop(name, None)
        if queue is not None and queue.owner is not None:
            _discard(self._owned, queue.owner, name)

    def put_binding(self, key: bytes, binding: Binding) -> None:
        """Add a binding, once."""
        if key in self.bindings_by_key:
            return
        self.bindings_by_key[key] = binding
        self._from.setdefault(binding.source, {})[key] = binding
        self._to.setdefault(Destination(binding.kind, binding.destination), {})[key] = binding
        if binding.source in self._matchers:
            self._matchers[binding.source].add(binding)

    def drop_binding(self, key: bytes) -> None:
        """Forget a binding."""
        binding = self.bindings_by_key.pop(key, None)
        if binding is None:
            return
        _discard(self._from, binding.source, key)
        _discard(self._to, Destination(binding.kind, binding.destination), key)
        if binding.source in self._matchers:
            self._matchers[binding.source].remove(binding)


def _discard(index: dict[K, dict[N, V]], key: K, name: N) -> None:
    del index[key][name]
    if not index[key]:
        del index[key]
