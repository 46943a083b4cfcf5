"""How each kind of exchange finds the destinations of a message among its bindings."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

from headwater.broker.queues.exchanges import Binding, Exchange, ExchangeKind, weight_of
from headwater.broker.queues.names import DEFAULT_EXCHANGE, Kind
from headwater.broker.queues.topic_trie import TopicTrie
from headwater.record.amqp.tables import Table


class Destination(NamedTuple):
    """What a binding leads to."""

    kind: Kind
    name: str


@dataclass(frozen=True, slots=True)
class Question:
    """What a matcher may ask about a message."""

    routing_keys: Sequence[str]
    """Its routing key, then those of its CC and BCC headers."""
    headers: Callable[[], Table]
    property_named: Callable[[str], Any]


class Matcher(ABC):
    """The bindings of an exchange, arranged for its kind's rule."""

    reads_message = False
    """Whether anything but the routing key decides."""

    @abstractmethod
    def add(self, binding: Binding) -> None:
        """Take a binding in."""

    @abstractmethod
    def remove(self, binding: Binding) -> None:
        """Forget a binding that was added."""

    @abstractmethod
    def match(self, question: Question) -> Collection[Destination]:
        """Return where a message goes; a destination may be in it more than once."""


def matcher_for(exchange: Exchange) -> Matcher:
    """Return an empty matcher of the exchange's kind."""
    kind = exchange.routes_as
    if exchange.name == DEFAULT_EXCHANGE:
        return _DefaultMatcher()
    if kind is ExchangeKind.DIRECT:
        return _DirectMatcher()
    if kind is ExchangeKind.TOPIC:
        return _TopicMatcher()
    if kind is ExchangeKind.HEADERS:
        return _HeadersMatcher()
    if kind is ExchangeKind.CONSISTENT_HASH:
        return _HashMatcher(exchange.arguments)
    return _FanoutMatcher()


class _Counted(dict[Destination, int]):
    """Destinations with how many bindings lead to each: arguments alone can make two of one."""

    def take(self, destination: Destination) -> None:
        self[destination] = self.get(destination, 0) + 1

    def drop(self, destination: Destination) -> None:
        left = self[destination] - 1
        if left:
            self[destination] = left
        else:
            del self[destination]


class _DefaultMatcher(Matcher):
    """The queue that the routing key names; there are no bindings of the default exchange but those."""

    def add(self, binding: Binding) -> None:
        raise AssertionError(f"{binding} is refused: nothing is bound to the default exchange")

    def remove(self, binding: Binding) -> None:
        raise AssertionError(f"{binding} cannot be there: nothing is bound to the default exchange")

    def match(self, question: Question) -> Collection[Destination]:
        return [Destination("queue", key) for key in question.routing_keys]


class _FanoutMatcher(Matcher):
    """Every destination, whatever the message."""

    def __init__(self) -> None:
        self._destinations = _Counted()

    def add(self, binding: Binding) -> None:
        self._destinations.take(_destination(binding))

    def remove(self, binding: Binding) -> None:
        self._destinations.drop(_destination(binding))

    def match(self, question: Question) -> Collection[Destination]:
        return self._destinations


class _DirectMatcher(Matcher):
    """The destinations bound with the very routing key."""

    def __init__(self) -> None:
        self._by_key: dict[str, _Counted] = {}

    def add(self, binding: Binding) -> None:
        self._by_key.setdefault(binding.routing_key, _Counted()).take(_destination(binding))

    def remove(self, binding: Binding) -> None:
        destinations = self._by_key[binding.routing_key]
        destinations.drop(_destination(binding))
        if not destinations:
            del self._by_key[binding.routing_key]

    def match(self, question: Question) -> Collection[Destination]:
        return [d for key in question.routing_keys for d in self._by_key.get(key, ())]


class _TopicMatcher(Matcher):
    """The destinations bound with a pattern that the routing key's words match."""

    def __init__(self) -> None:
        self._trie: TopicTrie[Destination] = TopicTrie()

    def add(self, binding: Binding) -> None:
        self._trie.add(binding.routing_key, _destination(binding))

    def remove(self, binding: Binding) -> None:
        self._trie.remove(binding.routing_key, _destination(binding))

    def match(self, question: Question) -> Collection[Destination]:
        return [d for key in question.routing_keys for d in self._trie.match(key)]


class _HeadersMatcher(Matcher):
    """The destinations whose binding's arguments all, or any, equal the message's headers."""

    reads_message = True

    def __init__(self) -> None:
        self._rules: dict[Destination, list[tuple[Binding, _HeadersRule]]] = {}

    def add(self, binding: Binding) -> None:
        rule = _HeadersRule.of(binding.arguments)
        self._rules.setdefault(_destination(binding), []).append((binding, rule))

    def remove(self, binding: Binding) -> None:
        # By identity, since 1 and true are the same to Python and not to AMQP.
        destination = _destination(binding)
        rules = [rule for rule in self._rules.pop(destination) if rule[0] is not binding]
        if rules:
            self._rules[destination] = rules

    def match(self, question: Question) -> Collection[Destination]:
        headers = question.headers()
        return [d for d, rules in self._rules.items() if any(rule.matches(headers) for _, rule in rules)]


@dataclass(frozen=True, slots=True)
class _HeadersRule:
    """What a binding of a headers exchange asks for."""

    wanted: tuple[tuple[str, Any], ...]
    every: bool

    @classmethod
    def of(cls, arguments: Table) -> _HeadersRule:
        """Return the rule of a binding's arguments; those that start with x- count where `x-match` says so."""
        mode = arguments.get("x-match", "all")
        with_x = mode in ("all-with-x", "any-with-x")
        wanted = tuple(
            (name, value)
            for name, value in arguments.items()
            if name != "x-match" and (with_x or not name.startswith("x-"))
        )
        return cls(wanted, every=mode not in ("any", "any-with-x"))

    def matches(self, headers: Table) -> bool:
        """Whether a message with these headers is wanted."""
        found = (name in headers and _same(value, headers[name]) for name, value in self.wanted)
        return all(found) if self.every else any(found)


def _same(wanted: Any, value: Any) -> bool:
    if wanted is None:
        return True  # a field without value asks for the header's presence alone
    if isinstance(wanted, bool) or isinstance(value, bool):
        return wanted is value
    if isinstance(wanted, bytes) and isinstance(value, str):
        return wanted == value.encode(errors="surrogateescape")
    if isinstance(wanted, str) and isinstance(value, bytes):
        return wanted.encode(errors="surrogateescape") == value
    return bool(wanted == value)


class _HashMatcher(Matcher):
    """One destination per hashed value, each with a share of the values in proportion to its weight.

    By rendezvous hashing: every destination draws a number from its name and the value, and the one that its
    weight favours most wins. What a new destination wins it takes from the others in proportion, what a removed
    one had goes to the others, and nothing else moves. No ring is kept, so the shares are exact whatever the
    weights, and the same after a restart.
    """

    def __init__(self, arguments: Table) -> None:
        self._header = arguments.get("hash-header")
        self._property = arguments.get("hash-property")
        self.reads_message = self._header is not None or self._property is not None
        self._weights: dict[Destination, list[int]] = {}
        self._drawers: dict[Destination, tuple[int, float]] = {}

    def add(self, binding: Binding) -> None:
        destination = _destination(binding)
        weights = self._weights.setdefault(destination, [])
        weights.append(weight_of(binding.routing_key) or 1)
        self._weigh(destination)

    def remove(self, binding: Binding) -> None:
        destination = _destination(binding)
        self._weights[destination].remove(weight_of(binding.routing_key) or 1)
        self._weigh(destination)

    def _weigh(self, destination: Destination) -> None:
        # A second binding to one destination changes nothing: the oldest one's weight counts.
        weights = self._weights[destination]
        if weights:
            self._drawers[destination] = (_hash(f"{destination.kind}:{destination.name}"), float(weights[0]))
        else:
            del self._weights[destination], self._drawers[destination]

    def match(self, question: Question) -> Collection[Destination]:
        if not self._drawers:
            return ()
        value = _hash(self._value(question))
        return (min(self._drawers, key=lambda d: _draw(value, *self._drawers[d])),)

    def _value(self, question: Question) -> Any:
        if self._header is not None:
            return question.headers().get(self._header)
        if self._property is not None:
            return question.property_named(self._property)
        return question.routing_keys[0]


_WORD = 2**64 - 1


def _hash(value: Any) -> int:
    data = value if isinstance(value, bytes) else str(value).encode(errors="surrogateescape")
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")


def _draw(value: int, destination: int, weight: float) -> float:
    """Return a number that is exponentially distributed with the weight as its rate: the lowest one wins."""
    mixed = value ^ destination
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _WORD
    mixed ^= mixed >> 31
    return -math.log((mixed + 1) / 2**64) / weight


def _destination(binding: Binding) -> Destination:
    return Destination(binding.kind, binding.destination)
