"""Exchanges: what is declared, which kinds there are, and what each kind asks of its bindings."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from headwater.broker import topic_names
from headwater.broker.queues import arguments as args
from headwater.broker.queues.equivalence import check_same_arguments, check_same_field, printed, type_name
from headwater.broker.queues.names import Kind, check_unreserved, described
from headwater.core.amqp import AmqpError, ReplyCode
from headwater.record.amqp.tables import Table

ALTERNATE_EXCHANGE: Final = "alternate-exchange"
HASH_PROPERTIES: Final = ("correlation_id", "message_id", "timestamp")
"""The properties that a consistent-hash exchange may hash by."""

_MATCH_MODES: Final = ("all", "any", "all-with-x", "any-with-x")


class ExchangeKind(StrEnum):
    """The exchange types, by the names that clients declare them with."""

    DIRECT = "direct"
    FANOUT = "fanout"
    TOPIC = "topic"
    HEADERS = "headers"
    CONSISTENT_HASH = "x-consistent-hash"
    DELAYED = "x-delayed-message"
    """Holds what has an `x-delay`, then routes as the type in its argument `x-delayed-type` does."""
    HEADWATER_TOPIC = "x-headwater-topic"
    """Appends what is published to the topic in its argument `topic`."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A declared exchange."""

    vhost: str
    name: str
    kind: ExchangeKind
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: Table = field(default_factory=dict)
    routes_as: ExchangeKind = field(init=False, compare=False, repr=False)
    """The kind whose rule finds the destinations: of a delayed exchange, the one it wraps."""
    alternate: str | None = field(init=False, compare=False, repr=False)
    """The exchange that gets what this one finds no destination for."""
    topic: str | None = field(init=False, compare=False, repr=False)
    """The topic that this exchange appends to, where it is of that kind."""

    def __post_init__(self) -> None:
        kind = self.kind
        if kind is ExchangeKind.DELAYED:
            wrapped = args.text_of(self.arguments, "x-delayed-type")
            kind = next((known for known in ExchangeKind if known == wrapped), ExchangeKind.DIRECT)
        topic = args.text_of(self.arguments, "topic") if kind is ExchangeKind.HEADWATER_TOPIC else None
        object.__setattr__(self, "routes_as", kind)
        # The default exchange as alternate is as none in RabbitMQ, which keeps no bindings of it.
        object.__setattr__(self, "alternate", args.text_of(self.arguments, ALTERNATE_EXCHANGE) or None)
        object.__setattr__(self, "topic", topic)

    def __str__(self) -> str:
        return described("exchange", self.name, self.vhost)


@dataclass(frozen=True, slots=True)
class Binding:
    """A rule by which an exchange, the source, passes messages to a queue or another exchange."""

    source: str
    destination: str
    kind: Kind
    routing_key: str
    arguments: Table = field(default_factory=dict)


def predeclared(vhost: str) -> dict[str, Exchange]:
    """Return the exchanges that every virtual host has."""
    kinds = {
        "": ExchangeKind.DIRECT,
        "amq.direct": ExchangeKind.DIRECT,
        "amq.fanout": ExchangeKind.FANOUT,
        "amq.topic": ExchangeKind.TOPIC,
        "amq.headers": ExchangeKind.HEADERS,
        "amq.match": ExchangeKind.HEADERS,
    }
    return {name: Exchange(vhost, name, kind) for name, kind in kinds.items()}


def kind_named(name: str) -> ExchangeKind:
    """Return the kind of exchange of that name."""
    try:
        return ExchangeKind(name)
    except ValueError:
        raise AmqpError(ReplyCode.COMMAND_INVALID, f"unknown exchange type '{name}'") from None


def check_new(exchange: Exchange) -> None:
    """Refuse an exchange that may not be declared."""
    check_unreserved("exchange", exchange.name)
    args.check_name_argument(exchange.arguments, ALTERNATE_EXCHANGE, str(exchange))
    if exchange.kind is ExchangeKind.DELAYED:
        _check_delayed_type(exchange.arguments)
    if exchange.routes_as is ExchangeKind.CONSISTENT_HASH:
        _check_hash_arguments(exchange.arguments)
    elif exchange.routes_as is ExchangeKind.HEADWATER_TOPIC:
        _check_topic(exchange)


def check_equivalent(exchange: Exchange, again: Exchange) -> None:
    """Refuse a second declaration that differs from the first.

    Of the arguments RabbitMQ compares the alternate exchange alone; ours is the topic.
    """
    resource = str(exchange)
    check_same_field("type", exchange.kind.value, again.kind.value, resource)
    check_same_field("durable", exchange.durable, again.durable, resource)
    check_same_field("auto_delete", exchange.auto_delete, again.auto_delete, resource)
    check_same_field("internal", exchange.internal, again.internal, resource)
    compared = [ALTERNATE_EXCHANGE]
    if exchange.kind is ExchangeKind.HEADWATER_TOPIC:
        compared.append("topic")
    check_same_arguments(exchange.arguments, again.arguments, compared, resource)


def check_binding(exchange: Exchange, binding: Binding) -> None:
    """Refuse a binding that the source's kind can make nothing of."""
    kind = exchange.routes_as
    if kind is ExchangeKind.HEADERS:
        _check_match_mode(binding.arguments)
    elif kind is ExchangeKind.CONSISTENT_HASH:
        _check_weight(binding.routing_key)
    elif kind is ExchangeKind.HEADWATER_TOPIC:
        raise _refused(f"{exchange} appends to topic '{exchange.topic}' and has no bindings")


def _check_delayed_type(arguments: Table) -> None:
    name = arguments.get("x-delayed-type")
    if not isinstance(name, str):
        raise _refused("Invalid argument, 'x-delayed-type' must be an existing exchange type")
    if name == ExchangeKind.DELAYED:
        raise _refused(f"Invalid argument, '{name}' can't be used for 'x-delayed-type'")
    kind_named(name)


def _check_hash_arguments(arguments: Table) -> None:
    header, hashed = arguments.get("hash-header"), arguments.get("hash-property")
    if header is not None and hashed is not None:
        raise _refused("hash-header and hash-property are mutually exclusive")
    if header is not None and not isinstance(header, str):
        raise _refused(f"hash-header must be a string, got {type_name(header)}")
    if hashed is not None and hashed not in HASH_PROPERTIES:
        raise _refused(f"Unsupported property: {hashed}")


def _check_topic(exchange: Exchange) -> None:
    topic = exchange.arguments.get("topic")
    problem = topic_names.problem_with(topic) if isinstance(topic, str) else "expected the name of a topic"
    if problem:
        raise _refused(f"invalid arg 'topic' for {exchange}: {problem}")


def _check_match_mode(arguments: Table) -> None:
    if "x-match" not in arguments:
        return
    mode = arguments["x-match"]
    if not isinstance(mode, str):
        raise _refused(
            f"Invalid x-match field type {type_name(mode)} (value {printed(mode)}); expected longstr"
        )
    if mode not in _MATCH_MODES:
        raise _refused(
            f"Invalid x-match field value {printed(mode)}; expected all, any, all-with-x, or any-with-x"
        )


def _check_weight(routing_key: str) -> None:
    weight = weight_of(routing_key)
    if weight is None:
        raise _refused(f"The binding key must be an integer: {printed(routing_key)}")
    if weight < 1:
        raise _refused("The binding key must be greater than 0")


def weight_of(routing_key: str) -> int | None:
    """Return the weight that a consistent-hash binding's key stands for, or None where it is no number."""
    digits = routing_key[1:] if routing_key[:1] in ("+", "-") else routing_key
    return int(routing_key) if digits.isascii() and digits.isdigit() else None


def _refused(text: str) -> AmqpError:
    return AmqpError(ReplyCode.PRECONDITION_FAILED, text)
