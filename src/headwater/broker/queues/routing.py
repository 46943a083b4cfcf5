"""Where a message goes: from exchange to exchange, until the queues and topics that get it are known."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headwater.broker.queues.exchanges import Exchange, ExchangeKind
from headwater.broker.queues.matching import Destination, Matcher, Question
from headwater.broker.queues.queue_definition import QueueDefinition
from headwater.record.amqp.tables import Table

_DELAY: Final = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Route:
    """Where a message goes: each queue and topic once, however many bindings lead there."""

    queues: tuple[QueueDefinition, ...] = ()
    topics: tuple[str, ...] = ()
    """The Kafka topics that it is appended to."""
    delayed: tuple[str, ...] = ()
    """The delayed exchanges that hold it for `delay_ms`; then it is routed anew from each of them,
    with its `x-delay` negated, which is also how consumers see it."""
    delay_ms: int = 0
    cacheable: bool = True
    """Whether every message with this exchange and routing key goes the same way while the topology stays."""


def find_route(
    exchanges: Mapping[str, Exchange],
    matchers: Mapping[str, Matcher],
    queues: Mapping[str, QueueDefinition],
    start: Exchange,
    question: Question,
) -> Route:
    """Return where a message that was published to `start` goes.

    An exchange is passed once, however the bindings between exchanges run. What an exchange has no destination
    for goes to its alternate exchange; one that is not there is as none.
    """
    seen = {start.name}
    waiting = [start]
    found: dict[str, QueueDefinition] = {}
    topics: dict[str, None] = {}
    delayed: list[str] = []
    delay_ms = 0
    cacheable = len(question.routing_keys) == 1
    for exchange in waiting:
        if exchange.kind is ExchangeKind.DELAYED:
            cacheable = False
            delay_ms = delay_of(question.headers())
            if delay_ms > 0:
                delayed.append(exchange.name)
                continue
        if exchange.topic is not None:
            topics[exchange.topic] = None
            continue
        matcher = matchers[exchange.name]
        cacheable = cacheable and not matcher.reads_message
        destinations = matcher.match(question)
        if not destinations and exchange.alternate is not None:
            destinations = (Destination("exchange", exchange.alternate),)
        for kind, name in destinations:
            if kind == "queue":
                if name in queues:
                    found[name] = queues[name]
            elif name not in seen and name in exchanges:
                seen.add(name)
                waiting.append(exchanges[name])
    return Route(tuple(found.values()), tuple(topics), tuple(delayed), delay_ms if delayed else 0, cacheable)


def delay_of(headers: Table) -> int:
    """Return the milliseconds that a message asks a delayed exchange to wait, 0 where it asks for none."""
    value = headers.get("x-delay")
    if isinstance(value, str) and _DELAY.fullmatch(value):
        return int(value)
    return max(0, value) if isinstance(value, int) and not isinstance(value, bool) else 0
