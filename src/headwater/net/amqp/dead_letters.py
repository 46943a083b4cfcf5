"""What becomes of messages that nobody consumed: published again where their queue says, with their history.

The `x-death` header has one entry for each queue and reason that a message has died of, the latest first,
with how often. A message that would come back to a queue where it has died before, without anybody having
rejected it since, is dropped: it would go round for ever.

A message is settled when the letters made of it are on stable storage, so a crash in between leaves both. It is
lost with what its queue's dead-letter exchange does not take: one that is not there, or leads nowhere.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime
from sys import maxsize
from typing import TYPE_CHECKING, Any

from headwater.broker.queues.queue import Dead, Queue, Reason
from headwater.log.partition import PartitionLog
from headwater.record.amqp.message import Message, encode_address
from headwater.record.amqp.properties import Properties
from headwater.record.amqp.tables import Long, Table

if TYPE_CHECKING:
    from headwater.net.amqp.service import QueueService

__all__ = ["DeadLetters"]

logger = logging.getLogger(__name__)

_MAX_COUNT = 2**63 - 1
_SLICE = 256
"""How many of the dead are buried before the other connections have their turn."""
_REPORTED = 1000
"""How many cycles are remembered as reported."""


class DeadLetters:
    """Buries the dead of queues."""

    def __init__(self, service: QueueService) -> None:
        self._service = service
        self._waiting: dict[Queue, None] = {}
        self._burying = False
        self._planned = False
        self._late: list[Message] = []
        """What is settled when all that was published in this turn is on disk,"""
        self._syncing: list[tuple[list[Message], list[PartitionLog]]] = []
        """and of earlier turns, with the logs that are being synced."""
        self._reported: set[tuple[str, ...]] = set()

    def bury(self, queue: Queue) -> None:
        """Publish what a queue has taken out and not delivered to its dead-letter exchange, and settle it.

        A letter may push others out of where it goes: those are buried in turn, one queue after the other.
        """
        self._waiting[queue] = None
        if not self._burying:
            self._go_on()

    def _go_on(self) -> None:
        """Bury a slice; the next one has to wait until the other connections had their turn."""
        self._bury_some(_SLICE)
        if self._waiting and not self._planned:
            self._planned = True
            self._service.node.loop.call_soon(self._go_on_as_planned)

    def _go_on_as_planned(self) -> None:
        self._planned = False
        self._go_on()
        self._service.end_soon()

    def finish(self) -> bool:
        """Bury all that is left, here and now; true if there was anything."""
        found = bool(self._waiting)
        self._bury_some(maxsize)
        return found

    def _bury_some(self, most: int) -> None:
        self._burying = True
        try:
            while self._waiting and most > 0:
                queue, _ = self._waiting.popitem()
                most -= self._bury(queue, most)
        finally:
            self._burying = False

    def _bury(self, queue: Queue, most: int) -> int:
        dead, queue.dead = queue.dead[:most], queue.dead[most:]
        if queue.dead:
            self._waiting[queue] = None
        definition = queue.definition
        exchange = queue.settings.dead_letter_exchange
        vhost = self._service.definitions.vhosts.get(definition.vhost)
        known = exchange is not None and vhost is not None and exchange in vhost.exchanges
        for entry in dead:
            if exchange is not None and known:
                try:
                    self._publish(queue, entry, exchange)
                except Exception as error:  # the others, and whoever's turn it is, go on
                    logger.error("a message of %s could not be dead-lettered: %s", definition, error)
            message = entry.message
            if message.lane is None:
                continue  # it was never in the queue
            if known and message.offset >= 0:
                self._late.append(message)
            else:
                message.lane.settle(message)
        return len(dead)

    # -- settling --------------------------------------------------------------------------------

    def settle_after(self, logs: list[PartitionLog], failure: str | None) -> None:
        """Settle what died in this turn once the logs that it wrote to are synced."""
        if not self._late:
            return
        late, self._late = self._late, []
        if failure is not None:
            return  # they are still where they were, and come back with a restart
        self._syncing.append((late, logs))
        self._service.node.commit.wait(self._synced)

    def _synced(self) -> None:
        # Turns are synced in their order, so it is the first one that this is about.
        if self._syncing:
            _settle(*self._syncing.pop(0))
            self._service.end_soon()

    def close(self) -> None:
        """Settle what waits for a sync, here and now."""
        syncing, self._syncing = self._syncing, []
        for messages, logs in syncing:
            for log in logs:
                log.sync()
            _settle(messages, logs)

    # -- letters ---------------------------------------------------------------------------------

    def _publish(self, queue: Queue, entry: Dead, exchange: str) -> None:
        service, definition, message = self._service, queue.definition, entry.message
        properties = message.properties()
        headers = dict(properties.headers or {})
        copies = _keys(headers, "CC")
        _add_death(headers, queue, entry, [message.routing_key, *copies], properties, service.now_ms())
        routing_key = definition.settings.dead_letter_routing_key
        if routing_key is None:
            routing_key = message.routing_key
        else:
            headers.pop("CC", None)
            copies = []
        properties.headers = headers
        properties.expiration = None
        route = service.definitions.route(
            definition.vhost,
            exchange,
            routing_key,
            lambda: headers,
            copies=copies,
            property_named=lambda name: getattr(properties, name, None),
        )
        if entry.reason != Reason.REJECTED:
            deaths = headers["x-death"]
            cycling = [target.name for target in route.queues if _goes_round(deaths, target.name)]
            if cycling:
                self._report(cycling, deaths)
                route = replace(route, queues=tuple(q for q in route.queues if q.name not in cycling))
        letter = message.rewritten(encode_address(exchange, routing_key), properties)
        service.forward(definition.vhost, letter, route)

    def _report(self, cycling: list[str], deaths: list[Any]) -> None:
        cycle = (*cycling, *(str(death.get("queue")) for death in deaths if isinstance(death, dict)))
        if cycle not in self._reported and len(self._reported) < _REPORTED:
            self._reported.add(cycle)
            logger.warning(
                "messages are dropped that go round without anybody rejecting them: %s", " < ".join(cycle)
            )


def _settle(messages: list[Message], logs: list[PartitionLog]) -> None:
    if all(log.error is None for log in logs):
        for message in messages:
            message.lane.settle(message)


def _keys(headers: Table, name: str) -> list[str]:
    keys = headers.get(name)
    return [key for key in keys if isinstance(key, str)] if isinstance(keys, list) else []


def _add_death(
    headers: Table, queue: Queue, entry: Dead, keys: list[str], properties: Properties, now_ms: int
) -> None:
    """Add one more death to the history in headers."""
    name, reason = queue.definition.name, entry.reason
    history = headers.get("x-death")
    if history is None:
        headers["x-first-death-reason"] = reason
        headers["x-first-death-queue"] = name
        headers["x-first-death-exchange"] = entry.message.exchange
    # Anything but a list is what a client made of the header when it published the message again.
    deaths = _grouped(history) if isinstance(history, list) else []
    for i, death in enumerate(deaths):
        if isinstance(death, dict) and death.get("queue") == name and death.get("reason") == reason:
            count = death.get("count", 0)
            known = isinstance(count, int) and count < _MAX_COUNT
            headers["x-death"] = [
                {**death, "count": Long(count + 1 if known else 1)},
                *deaths[:i],
                *deaths[i + 1 :],
            ]
            return
    died: Table = {
        "count": Long(1),
        "reason": reason,
        "queue": name,
        "time": datetime.fromtimestamp(now_ms // 1000, UTC),
        "exchange": entry.message.exchange,
        "routing-keys": keys,
    }
    if properties.expiration is not None:
        died["original-expiration"] = properties.expiration
    headers["x-death"] = [died, *deaths]


def _grouped(history: list[Any]) -> list[Any]:
    """Return a history in which each queue and reason comes once."""
    seen: set[tuple[str, str]] = set()
    deaths = []
    for death in history:
        if isinstance(death, dict):
            key = (str(death.get("queue")), str(death.get("reason")))
            if key in seen:
                continue
            seen.add(key)
        deaths.append(death)
    return deaths


def _goes_round(deaths: list[Any], queue: str) -> bool:
    """Tell whether a message has died in a queue before and nobody has rejected it since."""
    for death in deaths:
        if not isinstance(death, dict) or death.get("reason") == Reason.REJECTED:
            return False  # somebody has looked at it
        if death.get("queue") == queue:
            return True
    return False
