"""Throttling: what each client and topic has taken lately, and how long one must wait that took too much.

A Produce request that goes over a limit is served all the same, and its client told for how long to send
nothing; its connection is not read for that time, should it not obey (KIP-219). A fetch that would go
over is answered at once with nothing, and is told when to come again. A request that creates or deletes
partitions is refused while its client has made too many, which it is told with how long to wait.

Where no quota and no topic's limit is set, `active` is false, and nothing else here is ever called.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from headwater.broker.quotas import CONSUMED, MUTATIONS, PRODUCED, REQUESTS, Grant, Quotas
from headwater.broker.rates import Bucket, Rate, Rates, Window
from headwater.core.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from headwater.broker.state import StateRecord
    from headwater.net.kafka.api import Request
    from headwater.net.kafka.connection import KafkaConnection

PRODUCE_LIMIT: Final = "headwater.produce.byte.rate"
CONSUME_LIMIT: Final = "headwater.consume.byte.rate"
_LONGEST_MS: Final = 2**31 - 1


class Mutations:
    """How many partitions one request may create or delete, and how long its client waits then."""

    def __init__(self, bucket: Bucket | None, limit: float, now_ms: int, *, strict: bool) -> None:
        self._bucket = bucket
        self._limit = limit
        self._now_ms = now_ms
        self._strict = strict
        self.wait_ms = 0

    def take(self, partitions: int) -> None:
        """Count partitions, or raise `ApiError` where the client has to wait first."""
        if self._bucket is None:
            return
        if self._strict:
            self.wait_ms = min(self._bucket.overdrawn_ms(self._limit, self._now_ms), _LONGEST_MS)
            if self.wait_ms:
                raise ApiError(ErrorCode.throttling_quota_exceeded)
        self._bucket.take(partitions, self._limit, self._now_ms)
        if not self._strict:
            self.wait_ms = min(self._bucket.overdrawn_ms(self._limit, self._now_ms), _LONGEST_MS)


class Throttle:
    """The limits of one broker, and the rates that are held against them."""

    def __init__(self, window: Window, mutations: Window | None = None) -> None:
        self.quotas = Quotas()
        self.active = False
        """Whether anything is limited: the one thing that a request looks at when nothing is."""
        self.throttled_ms = 0
        """How long clients have been told to wait, in all."""
        self._rates = Rates(Rate, window)
        self._buckets = Rates(Bucket, mutations or Window())
        self._topics: dict[str, tuple[int, int]] = {}

    # -- limits ----------------------------------------------------------------------------------

    def replay(self, record: StateRecord) -> None:
        """Take a record of the metadata log."""
        if self.quotas.replay(record):
            self._refresh()

    def limit_topic(self, topic: str, settings: Mapping[str, Any] | None) -> None:
        """Take what a topic's settings say, or, where it has none any more, forget it."""
        limits = (-1, -1) if settings is None else (settings[PRODUCE_LIMIT], settings[CONSUME_LIMIT])
        if max(limits) > 0:
            self._topics[topic] = limits
        else:
            self._topics.pop(topic, None)
        self._refresh()

    def _refresh(self) -> None:
        self.active = bool(self.quotas.by_entity or self._topics)

    # -- taking ----------------------------------------------------------------------------------

    def produced(
        self,
        connection: KafkaConnection,
        size: int,
        by_topic: Iterable[tuple[str, int]],
        seconds: float,
        now_ms: int,
    ) -> int:
        """Count a Produce request, and return how many milliseconds its client must wait."""
        wait_ms = self._spent(connection, seconds, now_ms)
        taken = [(grant, amount) for grant, amount in self._topic_grants(by_topic, PRODUCED)]
        own = self._grant(PRODUCED, connection)
        if own is not None:
            taken.append((own, size))
        for grant, amount in taken:
            rate = self._rates.of(grant.taker)
            rate.record(amount, now_ms)
            wait_ms = max(wait_ms, rate.throttle_ms(grant.limit, now_ms))
        wait_ms = min(wait_ms, _LONGEST_MS)
        self.throttled_ms += wait_ms
        return wait_ms

    def room(self, connection: KafkaConnection, topics: Iterable[str]) -> int:
        """Return the most that a fetch may take at once without being over a limit for that alone."""
        grants = [grant for grant, _ in self._topic_grants(((topic, 0) for topic in topics), CONSUMED)]
        own = self._grant(CONSUMED, connection)
        if own is not None:
            grants.append(own)
        capacity = self._rates.window.capacity
        return min((capacity(grant.limit) for grant in grants), default=2**31 - 1)

    def consumed(
        self,
        connection: KafkaConnection,
        size: int,
        by_topic: Iterable[tuple[str, int]],
        seconds: float,
        now_ms: int,
    ) -> tuple[bool, int]:
        """Count a fetch; return whether it may be answered with what was found, and the client's wait.

        One that may not is not counted. A batch that is larger than all that a limit allows is given to
        a client that has taken nothing lately: it would never get it otherwise.
        """
        wait_ms = self._spent(connection, seconds, now_ms)
        taken = list(self._topic_grants(by_topic, CONSUMED))
        own = self._grant(CONSUMED, connection)
        if own is not None:
            taken.append((own, size))
        granted = True
        for grant, amount in taken:
            rate = self._rates.of(grant.taker)
            quiet = rate.total(now_ms) == 0
            rate.record(amount, now_ms)
            over_ms = rate.throttle_ms(grant.limit, now_ms)
            granted = granted and (over_ms == 0 or quiet or amount == 0)
            wait_ms = max(wait_ms, over_ms)
        if not granted:
            for grant, amount in taken:
                self._rates.of(grant.taker).record(-amount, now_ms)
        wait_ms = min(wait_ms, _LONGEST_MS)
        self.throttled_ms += wait_ms
        return granted, wait_ms

    def connected(self, host: str, now_ms: int) -> int:
        """Count a new connection, and return how many milliseconds its address is too early."""
        grant = self.quotas.address(host)
        if grant is None:
            return 0
        rate = self._rates.of(grant.taker)
        rate.record(1, now_ms)
        wait_ms = rate.throttle_ms(grant.limit, now_ms)
        if wait_ms:
            rate.record(-1, now_ms)
        # As in Kafka, which keeps nobody longer than a sample for this.
        return min(wait_ms, self._rates.window.span_ms)

    def mutations(self, request: Request, strict_since: int, now_ms: int) -> Mutations:
        """Return what counts the partitions that a request creates or deletes.

        Clients of versions since `strict_since` know how to be refused; the older ones wait afterwards.
        """
        grant = None
        if self.active:
            grant = self.quotas.client(MUTATIONS, request.user, request.client_id or "")
        if grant is None:
            return Mutations(None, 0.0, now_ms, strict=True)
        strict = request.version >= strict_since
        return Mutations(self._buckets.of(grant.taker), grant.limit, now_ms, strict=strict)

    def _spent(self, connection: KafkaConnection, seconds: float, now_ms: int) -> int:
        grant = self._grant(REQUESTS, connection)
        if grant is None:
            return 0
        rate = self._rates.of(grant.taker)
        rate.record(100 * seconds, now_ms)
        return min(rate.throttle_ms(grant.limit, now_ms), self._rates.window.span_ms)

    def _grant(self, key: str, connection: KafkaConnection) -> Grant | None:
        return self.quotas.client(key, connection.user, connection.client_id or "")

    def _topic_grants(self, by_topic: Iterable[tuple[str, int]], key: str) -> Iterable[tuple[Grant, int]]:
        if not self._topics:
            return
        sizes: dict[str, int] = {}
        for topic, size in by_topic:
            sizes[topic] = sizes.get(topic, 0) + size
        for topic, size in sizes.items():
            limit = self._topics.get(topic, (-1, -1))[key == CONSUMED]
            if limit > 0:
                yield Grant(("topic", key, topic), limit), size
