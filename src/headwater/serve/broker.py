"""The broker as the HTTP server sees it: topics with their rates, and records handed to it.

librdkafka works in threads of its own. One thread here serves its delivery reports, another asks for the
topics and their ends once a second; both tell the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from headwater.core.errors import HeadwaterError
from headwater.core.urls import KafkaUrl

__all__ = ["Broker", "BrokerAway", "RecordTooLarge", "TopicRate", "UnknownTopic", "refusal"]

_POLL_SECONDS = 1.0
_ANSWER_SECONDS = 5.0
_HISTORY = 60
_MAX_PARTITIONS = 2000
_NOT_ASKED = "not asked yet"

logger = logging.getLogger(__name__)


class BrokerAway(HeadwaterError):
    """A broker that does not answer, or did not acknowledge in time."""


class RecordTooLarge(HeadwaterError):
    """A record that the broker does not take."""


class UnknownTopic(HeadwaterError):
    """A topic that the broker does not have."""


@dataclass
class TopicRate:
    """A topic's records by its end offsets, and how many came in each of the last seconds."""

    name: str
    partitions: int = 0
    end: int = 0
    history: deque[float] = field(default_factory=lambda: deque(maxlen=_HISTORY))

    @property
    def rate(self) -> float:
        """Records in the last second."""
        return self.history[-1] if self.history else 0.0


class Broker:
    """A connection to the broker, and what it last said."""

    def __init__(self, url: KafkaUrl) -> None:
        self.url = url
        self.topics: dict[str, TopicRate] = {}
        self.error: str | None = _NOT_ASKED
        self.acknowledged = 0
        properties: dict[str, Any] = url.properties() | {"client.id": "headwater-serve", "log_level": "0"}
        self._producer = Producer(
            properties
            | {
                "acks": "all",
                "enable.idempotence": "true",
                "linger.ms": "2",
                "message.timeout.ms": str(int(_ANSWER_SECONDS * 1000)),
                # What is too large is the broker's to say.
                "message.max.bytes": "100000000",
            }
        )
        self._reason = ""
        self._admin = AdminClient(properties | {"error_cb": self._note})
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=work, name=f"broker-{work.__name__.strip('_')}", daemon=True)
            for work in (self._report, self._ask)
        ]
        self._asked_at: float | None = None

    def start(self) -> None:
        """Begin to ask."""
        for thread in self._threads:
            thread.start()

    async def close(self) -> None:
        """Stop asking; records that are on their way get a moment."""
        self._stopping.set()
        await asyncio.to_thread(self._producer.flush, 0.5)

    async def send(self, topic: str, records: Sequence[tuple[bytes | None, bytes]]) -> list[tuple[int, int]]:
        """Append records, and return their partitions and offsets once the broker has acknowledged them."""
        await self.require(topic)
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in records]
        for future, (key, value) in zip(futures, records, strict=True):
            report = _report_to(loop, future)
            try:
                self._producer.produce(topic, value=value, key=key, on_delivery=report)
            except BufferError:
                future.set_exception(BrokerAway("too many records wait for the broker: try again"))
            except KafkaException as error:
                future.set_exception(refusal(error.args[0], topic))
        results = await asyncio.gather(*futures, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        self.acknowledged += len(records)
        return [place for place in results if isinstance(place, tuple)]

    async def require(self, topic: str) -> None:
        """Refuse a topic that is not there."""
        if topic not in self.topics:
            await asyncio.to_thread(self._find, topic)

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """Return the offsets that a group has committed, by topic and partition."""
        try:
            asked = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
            found = asked[group].result(_ANSWER_SECONDS)
        except (KafkaException, TimeoutError) as error:
            raise BrokerAway(f"the broker at {self.url.bootstrap} does not answer: {error}") from None
        return {
            (place.topic, place.partition): place.offset
            for place in found.topic_partitions
            if place.error is None and place.offset >= 0
        }

    def _find(self, topic: str) -> None:
        # All topics are asked for: asking for one would create it where the broker creates topics on demand.
        try:
            found = self._admin.list_topics(timeout=_ANSWER_SECONDS).topics
        except KafkaException as error:
            raise BrokerAway(self._away(error)) from None
        if topic not in found:
            raise UnknownTopic(f"there is no topic named {topic}")

    def _report(self) -> None:
        while not self._stopping.is_set():
            self._producer.poll(0.1)

    def _ask(self) -> None:
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                self._count(began)
                self._tell(None)
                self._reason = ""
            except KafkaException as error:
                self._admin.poll(0)  # which calls `_note`
                self._tell(self._away(error))
            self._stopping.wait(max(_POLL_SECONDS - (time.monotonic() - began), 0.1))

    def _away(self, error: KafkaException) -> str:
        return f"the broker at {self.url.bootstrap} does not answer: {self._reason or error.args[0].str()}"

    def _note(self, error: KafkaError) -> None:
        """Keep why a connection failed: what was asked for over it tells only that it took too long."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            # What librdkafka adds about itself in parentheses helps nobody.
            self._reason = error.str().partition(" (after ")[0]

    def _tell(self, error: str | None) -> None:
        """Log what changed: whoever reads the log does not see the page."""
        if error is not None and self.error in (None, _NOT_ASKED):
            logger.warning("%s", error)
        elif error is None and self.error not in (None, _NOT_ASKED):
            logger.info("the broker at %s answers again", self.url.bootstrap)
        self.error = error

    def _count(self, now: float) -> None:
        """Ask for every topic's end offsets, and note how far they moved."""
        found = self._admin.list_topics(timeout=_ANSWER_SECONDS).topics
        places = [
            TopicPartition(str(name), partition)
            for name, topic in sorted(found.items())
            if not str(name).startswith("__")
            for partition in topic.partitions
        ][:_MAX_PARTITIONS]
        ends: dict[str, list[int]] = {}
        if places:
            asked = self._admin.list_offsets({place: OffsetSpec.latest() for place in places})  # type: ignore[no-untyped-call]
            for place, future in asked.items():
                ends.setdefault(place.topic, []).append(future.result(_ANSWER_SECONDS).offset)
        for gone in self.topics.keys() - ends.keys():
            self.topics.pop(gone)
        seconds = now - self._asked_at if self._asked_at is not None else None
        for name, offsets in ends.items():
            topic = self.topics.setdefault(name, TopicRate(name))
            if seconds and topic.partitions:
                topic.history.append(max(sum(offsets) - topic.end, 0) / seconds)
            topic.partitions, topic.end = len(offsets), sum(offsets)
        self._asked_at = now


def _report_to(loop: asyncio.AbstractEventLoop, future: asyncio.Future[tuple[int, int]]) -> Any:
    def tell(error: KafkaError | None, message: Message) -> None:
        if future.done():
            return  # whoever asked is gone
        if error is not None:
            future.set_exception(refusal(error, message.topic() or ""))
        else:
            future.set_result((message.partition() or 0, message.offset() or 0))

    return lambda error, message: loop.call_soon_threadsafe(tell, error, message)


def refusal(error: KafkaError, topic: str) -> HeadwaterError:
    """Return what an error of a record means to whoever sent it."""
    match error.code():
        case KafkaError.UNKNOWN_TOPIC_OR_PART | KafkaError._UNKNOWN_TOPIC | KafkaError.TOPIC_EXCEPTION:
            return UnknownTopic(f"there is no topic named {topic}")
        case KafkaError.MSG_SIZE_TOO_LARGE | KafkaError.RECORD_LIST_TOO_LARGE:
            return RecordTooLarge(f"a record is larger than the topic {topic} takes (its max.message.bytes)")
        case _:
            return BrokerAway(f"the broker did not acknowledge: {error.str()}")
