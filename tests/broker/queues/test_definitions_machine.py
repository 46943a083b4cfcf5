"""Two connections that declare, bind and delete anything in any order, with restarts in between.

The model keeps plain lists and tries every binding for every message.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from effort import examples
from headwater.broker.queues.names import Kind
from headwater.core.amqp import AmqpError, ReplyCode
from headwater.record.amqp.tables import Table

from .declared import ME, OTHER, Declared, state_of
from .test_topic_trie import matches, words_of

QUEUES = st.sampled_from(["q1", "q2", "q3"])
EXCHANGES = st.sampled_from(["x1", "x2", "x3", "amq.direct", "amq.topic", "amq.headers"])
OWN_EXCHANGES = st.sampled_from(["x1", "x2", "x3"])
KINDS = st.sampled_from(["direct", "fanout", "topic", "headers"])
OWNERS = st.sampled_from([ME, ME, OTHER])
KEYS = st.sampled_from(["", "a", "a.b", "b", "q1"])
PATTERNS = st.sampled_from(["", "a", "a.b", "a.*", "#", "*.b.#"])
ARGUMENTS = st.sampled_from([{}, {"h": 1}, {"x-match": "any", "h": 1, "g": "v"}])
HEADERS = st.sampled_from([{}, {"h": 1}, {"h": 2, "g": "v"}])
ALTERNATES = st.sampled_from([{}, {}, {"alternate-exchange": "x2"}, {"alternate-exchange": "amq.topic"}])


@dataclass
class ModelExchange:
    kind: str
    durable: bool
    auto_delete: bool
    arguments: Table


@dataclass
class ModelQueue:
    durable: bool
    owner: int | None


@dataclass(frozen=True)
class ModelBinding:
    source: str
    destination: str
    to_queue: bool
    key: str
    arguments: tuple[tuple[str, object], ...]


@dataclass
class Model:
    exchanges: dict[str, ModelExchange] = field(default_factory=dict)
    queues: dict[str, ModelQueue] = field(default_factory=dict)
    bindings: list[ModelBinding] = field(default_factory=list)

    def delete_exchange(self, name: str) -> None:
        del self.exchanges[name]
        self.bindings = [b for b in self.bindings if b.source != name]
        self.unbind([b for b in self.bindings if not b.to_queue and b.destination == name])

    def delete_queue(self, name: str) -> None:
        del self.queues[name]
        self.unbind([b for b in self.bindings if b.to_queue and b.destination == name])

    def unbind(self, gone: list[ModelBinding]) -> None:
        self.bindings = [b for b in self.bindings if b not in gone]
        for source in {b.source for b in gone}:
            exchange = self.exchanges.get(source)
            used = any(b.source == source for b in self.bindings)
            if exchange is not None and exchange.auto_delete and not used:
                self.delete_exchange(source)

    def survivors(self) -> Model:
        exchanges = {name: x for name, x in self.exchanges.items() if x.durable}
        queues = {name: q for name, q in self.queues.items() if q.durable}
        bindings = [
            b
            for b in self.bindings
            if b.source in exchanges and b.destination in (queues if b.to_queue else exchanges)
        ]
        return Model(exchanges, queues, bindings)

    def route(self, name: str, key: str, headers: Table, seen: set[str]) -> set[str]:
        if name in seen or name not in self.exchanges:
            return set()
        seen.add(name)
        exchange = self.exchanges[name]
        hits = [b for b in self.bindings if b.source == name and _hits(exchange.kind, b, key, headers)]
        found = {b.destination for b in hits if b.to_queue}
        onward = [b.destination for b in hits if not b.to_queue]
        if not hits:
            onward = [exchange.arguments.get("alternate-exchange", "none")]
        for destination in onward:
            found |= self.route(destination, key, headers, seen)
        return found


def _hits(kind: str, binding: ModelBinding, key: str, headers: Table) -> bool:
    if kind == "direct":
        return binding.key == key
    if kind == "topic":
        return matches(words_of(binding.key), words_of(key))
    if kind == "headers":
        arguments = dict(binding.arguments)
        mode = arguments.pop("x-match", "all")
        found = [headers.get(name) == value for name, value in arguments.items()]
        return any(found) if mode == "any" else all(found)
    return True


def refusal_of(attempt: Callable[[], object]) -> ReplyCode | None:
    """Return the code that an attempt was refused with, or None."""
    try:
        attempt()
    except AmqpError as error:
        return error.code
    return None


class DefinitionsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.real = Declared()
        self.model = Model()
        for name, kind in (("amq.direct", "direct"), ("amq.topic", "topic"), ("amq.headers", "headers")):
            self.model.exchanges[name] = ModelExchange(kind, durable=True, auto_delete=False, arguments={})

    def locked(self, queue: str, owner: int) -> bool:
        found = self.model.queues.get(queue)
        return found is not None and found.owner not in (None, owner)

    @rule(
        name=OWN_EXCHANGES, kind=KINDS, durable=st.booleans(), auto_delete=st.booleans(), arguments=ALTERNATES
    )
    def declare_exchange(
        self, name: str, kind: str, durable: bool, auto_delete: bool, arguments: Table
    ) -> None:
        wanted = ModelExchange(kind, durable, auto_delete, arguments)
        refusal = refusal_of(
            lambda: self.real.exchange(
                name, kind, durable=durable, auto_delete=auto_delete, arguments=arguments
            )
        )
        same = self.model.exchanges.setdefault(name, wanted) == wanted
        assert refusal == (None if same else ReplyCode.PRECONDITION_FAILED)

    @rule(name=QUEUES, durable=st.booleans(), exclusive=st.booleans(), owner=OWNERS)
    def declare_queue(self, name: str, durable: bool, exclusive: bool, owner: int) -> None:
        wanted = ModelQueue(durable and not exclusive, owner if exclusive else None)
        refusal = refusal_of(lambda: self.real.queue(name, durable=durable, exclusive=exclusive, owner=owner))
        current = self.model.queues.setdefault(name, wanted)
        if current.owner != wanted.owner:
            assert refusal is ReplyCode.RESOURCE_LOCKED
        else:
            assert refusal == (None if current == wanted else ReplyCode.PRECONDITION_FAILED)

    @rule(name=OWN_EXCHANGES, if_unused=st.booleans())
    def delete_exchange(self, name: str, if_unused: bool) -> None:
        used = any(b.source == name for b in self.model.bindings)
        refusal = refusal_of(
            lambda: self.real.apply(self.real.definitions.delete_exchange("/", name, if_unused=if_unused))
        )
        assert refusal == (ReplyCode.PRECONDITION_FAILED if if_unused and used else None)
        if refusal is None and name in self.model.exchanges:
            self.model.delete_exchange(name)

    @rule(name=QUEUES, owner=OWNERS)
    def delete_queue(self, name: str, owner: int) -> None:
        refusal = refusal_of(
            lambda: self.real.apply(self.real.definitions.delete_queue("/", name, owner=owner))
        )
        assert refusal == (ReplyCode.RESOURCE_LOCKED if self.locked(name, owner) else None)
        if refusal is None and name in self.model.queues:
            self.model.delete_queue(name)

    @rule(owner=OWNERS)
    def disconnect(self, owner: int) -> None:
        for queue in self.real.definitions.owned_by("/", owner):
            self.real.apply(self.real.definitions.delete_queue("/", queue.name))
        for name in [name for name, queue in self.model.queues.items() if queue.owner == owner]:
            self.model.delete_queue(name)

    @rule(source=EXCHANGES, name=QUEUES, key=PATTERNS, arguments=ARGUMENTS, owner=OWNERS)
    def bind_queue(self, source: str, name: str, key: str, arguments: Table, owner: int) -> None:
        refusal = refusal_of(lambda: self.real.bind(source, name, key, arguments, owner=owner))
        if source not in self.model.exchanges or name not in self.model.queues:
            assert refusal is ReplyCode.NOT_FOUND
        else:
            assert refusal == (ReplyCode.RESOURCE_LOCKED if self.locked(name, owner) else None)
        if refusal is None:
            self._bound(ModelBinding(source, name, to_queue=True, key=key, arguments=_frozen(arguments)))

    @rule(source=EXCHANGES, name=EXCHANGES, key=PATTERNS)
    def bind_exchange(self, source: str, name: str, key: str) -> None:
        refusal = refusal_of(lambda: self.real.bind_exchange(source, name, key))
        there = {source, name} <= set(self.model.exchanges)
        assert refusal == (None if there else ReplyCode.NOT_FOUND)
        if refusal is None:
            self._bound(ModelBinding(source, name, to_queue=False, key=key, arguments=()))

    def _bound(self, binding: ModelBinding) -> None:
        if binding not in self.model.bindings:
            self.model.bindings.append(binding)

    @precondition(lambda self: bool(self.model.bindings))
    @rule(data=st.data(), owner=OWNERS)
    def unbind(self, data: st.DataObject, owner: int) -> None:
        binding = data.draw(st.sampled_from(self.model.bindings))
        arguments = dict(reversed(binding.arguments))
        kind: Kind = "queue" if binding.to_queue else "exchange"
        refusal = refusal_of(
            lambda: self.real.apply(
                self.real.definitions.unbind(
                    "/", binding.source, binding.destination, kind, binding.key, arguments, owner=owner
                )
            )
        )
        locked = binding.to_queue and self.locked(binding.destination, owner)
        assert refusal == (ReplyCode.RESOURCE_LOCKED if locked else None)
        if refusal is None:
            self.model.unbind([binding])

    @rule(compacted=st.booleans())
    def restart(self, compacted: bool) -> None:
        self.real.restart(self.real.compacted() if compacted else None)
        self.model = self.model.survivors()

    @rule(exchange=EXCHANGES, key=KEYS, headers=HEADERS)
    def publish(self, exchange: str, key: str, headers: Table) -> None:
        if exchange not in self.model.exchanges:
            assert refusal_of(lambda: self.real.route(exchange)) is ReplyCode.NOT_FOUND
        else:
            found = self.real.reached(exchange, key, headers)
            assert found == sorted(self.model.route(exchange, key, headers, set()))

    @rule(key=KEYS)
    def publish_to_a_queue(self, key: str) -> None:
        assert self.real.reached("", key) == ([key] if key in self.model.queues else [])

    @invariant()
    def it_is_what_the_model_says(self) -> None:
        vhost = self.real.definitions.vhosts["/"]
        assert {q.name: ModelQueue(q.durable, q.owner) for q in vhost.queues.values()} == self.model.queues
        assert set(vhost.exchanges) - {"", "amq.fanout", "amq.match"} == set(self.model.exchanges)
        found = {
            ModelBinding(b.source, b.destination, b.kind == "queue", b.routing_key, _frozen(b.arguments))
            for b in vhost.bindings
        }
        assert found == set(self.model.bindings)
        assert len(list(vhost.bindings)) == len(found)

    @invariant()
    def the_log_tells_the_same(self) -> None:
        for log in (self.real.log, self.real.compacted()):
            again = Declared()
            again.apply(log)
            assert state_of(again.definitions) == state_of(self.real.definitions)


def _frozen(arguments: Table) -> tuple[tuple[str, object], ...]:
    return tuple(sorted(arguments.items()))


TestDefinitions = DefinitionsMachine.TestCase
TestDefinitions.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)
