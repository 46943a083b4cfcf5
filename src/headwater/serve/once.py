"""Records written once for each idempotency key, whatever crashes and however often a client asks again.

The records of a request, and its key with its answer, go to the broker in one transaction: to their topic, and to the
compacted topic `headwater.idempotency`. Whoever opens the writer fences the one before it (they share a transactional
id), and then reads that topic to its end: so it knows every answer that was ever committed, and a second
server, or the same one after a crash, cannot write a key again. Several servers are correct, though each time another
one of them is asked it has to take over.

One thread does all this, for all the requests that wait at a time in one transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headwater.core.errors import HeadwaterError
from headwater.core.urls import KafkaUrl
from headwater.serve.broker import BrokerAway, refusal

__all__ = ["TOPIC", "KeyReused", "OnceWriter", "Written"]

logger = logging.getLogger(__name__)

TOPIC = "headwater.idempotency"
KEEP_SECONDS = 24 * 3600
_GROUP = "headwater.ingest"
_SECONDS = 10.0
_TRIES = 3
_TOGETHER = 200

Payload = Sequence[tuple[bytes | None, bytes]]


class KeyReused(HeadwaterError):
    """An idempotency key that came with another body before."""


class Written(NamedTuple):
    """The partitions and offsets of a request's records, and whether they were there before."""

    places: list[tuple[int, int]]
    repeated: bool


class _Aborted(Exception):
    """A transaction that came to nothing."""


class _Known(NamedTuple):
    digest: str
    places: list[tuple[int, int]]
    at: float


@dataclass
class _Request:
    topic: str
    payload: Payload
    id: str
    digest: str
    done: Future[Written] = field(default_factory=Future)

    def __post_init__(self) -> None:
        # A client that goes away does not take its request back.
        self.done.set_running_or_notify_cancel()


class OnceWriter:
    """Writes requests under idempotency keys."""

    def __init__(self, url: KafkaUrl) -> None:
        self._properties: dict[str, Any] = url.properties() | {
            "client.id": "headwater-serve",
            "log_level": "0",
        }
        self._requests: queue.Queue[_Request | None] = queue.Queue()
        self._thread: threading.Thread | None = None
        self._producer: Producer | None = None
        self._known: dict[str, _Known] = {}
        self._read_up_to = 0

    async def write(self, topic: str, payload: Payload, key: str) -> Written:
        """Write records under a key, or find them written."""
        digest = hashlib.sha256()
        for record_key, value in payload:
            for part in (record_key or b"", value):
                digest.update(b"%d:" % len(part) + part)
        request = _Request(topic, payload, f"{topic} {key}", digest.hexdigest())
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="ingest-once", daemon=True)
            self._thread.start()
        self._requests.put(request)
        return await asyncio.wrap_future(request.done)

    def close(self) -> None:
        """Finish what is under way."""
        if self._thread is not None:
            self._requests.put(None)
            self._thread.join(2 * _SECONDS)

    def _run(self) -> None:
        while True:
            batch = self._together()
            if batch is None:
                return
            try:
                self._settle(batch)
            except Exception as error:  # nobody is left waiting, whatever it was
                self._producer = None
                if not isinstance(error, HeadwaterError | KafkaException):
                    logger.exception("records could not be written under their idempotency keys")
                told = error if isinstance(error, HeadwaterError) else BrokerAway(_away(error))
                for request in batch:
                    if not request.done.done():
                        request.done.set_exception(told)

    def _together(self) -> list[_Request] | None:
        """Return the requests that wait, of which no two have the same key."""
        first = self._requests.get()
        if first is None:
            return None
        batch = {first.id: first}
        while len(batch) < _TOGETHER:
            try:
                request = self._requests.get_nowait()
            except queue.Empty:
                break
            if request is None or request.id in batch:
                self._requests.put(request)  # behind the others: nobody waits for one of its own
                break
            batch[request.id] = request
        return list(batch.values())

    def _settle(self, batch: list[_Request]) -> None:
        """Answer every request; write those whose keys are new."""
        for _ in range(_TRIES):
            if self._producer is None:
                self._open()
            left = [request for request in batch if not self._answer(request)]
            if not left:
                return
            try:
                self._transact(left)
            except (KafkaException, _Aborted):
                # Whether it was committed, the topic tells when the writer is opened anew.
                self._producer = None
        if not all(request.done.done() for request in batch):
            raise BrokerAway("the broker did not acknowledge: try again")

    def _answer(self, request: _Request) -> bool:
        if request.done.done():
            return True
        known = self._known.get(request.id)
        if known is None or time.time() - known.at > KEEP_SECONDS:
            return False
        if known.digest != request.digest:
            key = request.id.partition(" ")[2]
            request.done.set_exception(
                KeyReused(
                    f"the idempotency key {key} came with other records before: take a new one for these"
                )
            )
        else:
            request.done.set_result(Written(known.places, repeated=True))
        return True

    def _transact(self, requests: list[_Request]) -> None:
        """Write requests and their answers in one transaction; one that the broker refuses is left out."""
        producer = self._producer
        assert producer is not None
        producer.begin_transaction()
        outcomes = [_Outcome(len(request.payload)) for request in requests]
        for request, outcome in zip(requests, outcomes, strict=True):
            for number, (key, value) in enumerate(request.payload):
                outcome.produce(producer, request.topic, number, key, value)
        producer.flush(_SECONDS)
        if any(outcome.error is not None or None in outcome.places for outcome in outcomes):
            # A producer that could not deliver is not good for another transaction.
            self._producer = None
            with contextlib.suppress(KafkaException):
                producer.abort_transaction(_SECONDS)
            for request, outcome in zip(requests, outcomes, strict=True):
                found = refusal(outcome.error, request.topic) if outcome.error is not None else None
                if found is not None and not isinstance(found, BrokerAway):
                    request.done.set_exception(found)
            raise _Aborted
        now = time.time()
        answers = {}
        for request, outcome in zip(requests, outcomes, strict=True):
            places = [place for place in outcome.places if place is not None]
            answers[request.id] = _Known(request.digest, places, now)
            producer.produce(TOPIC, key=request.id.encode(), value=json.dumps(answers[request.id]).encode())
        producer.commit_transaction(_SECONDS)
        self._known |= answers
        for request in requests:
            request.done.set_result(Written(answers[request.id].places, repeated=False))

    def _open(self) -> None:
        """Become the one writer, and learn what others have written."""
        self._create()
        producer = Producer(
            self._properties
            | {
                "transactional.id": _GROUP,
                "transaction.timeout.ms": "30000",
                "message.max.bytes": "100000000",
                "linger.ms": "1",
            }
        )
        producer.init_transactions(_SECONDS)
        self._catch_up()
        self._producer = producer

    def _create(self) -> None:
        settings = {"cleanup.policy": "compact,delete", "retention.ms": str(KEEP_SECONDS * 1000)}
        admin = AdminClient(self._properties)
        future = admin.create_topics([NewTopic(TOPIC, 1, config=settings)], request_timeout=_SECONDS)[TOPIC]
        try:
            future.result(_SECONDS)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def _catch_up(self) -> None:
        consumer = Consumer(
            self._properties
            | {
                "group.id": _GROUP,
                "enable.auto.commit": "false",
                "enable.partition.eof": "true",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
            }
        )
        deadline = time.monotonic() + 6 * _SECONDS
        try:
            consumer.assign([TopicPartition(TOPIC, 0, self._read_up_to)])
            while True:
                message = consumer.poll(_SECONDS)
                if message is None or time.monotonic() > deadline:
                    raise BrokerAway(f"the broker does not hand out {TOPIC}")
                error = message.error()
                if error is None:
                    self._learn(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    return
                else:
                    raise KafkaException(error)
        finally:
            consumer.close()

    def _learn(self, message: Message) -> None:
        self._read_up_to = (message.offset() or 0) + 1
        with contextlib.suppress(ValueError, TypeError, UnicodeDecodeError):
            digest, places, at = json.loads(message.value() or b"")
            key = (message.key() or b"").decode()
            self._known.pop(key, None)
            self._known[key] = _Known(digest, [(partition, offset) for partition, offset in places], at)
        # They are in the order of time: the oldest come first.
        for key, known in list(self._known.items()):
            if time.time() - known.at <= KEEP_SECONDS:
                break
            del self._known[key]


class _Outcome:
    """What became of a request's records."""

    def __init__(self, count: int) -> None:
        self.places: list[tuple[int, int] | None] = [None] * count
        self.error: KafkaError | None = None

    def produce(self, producer: Producer, topic: str, number: int, key: bytes | None, value: bytes) -> None:
        def report(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.error = error
            else:
                self.places[number] = (message.partition() or 0, message.offset() or 0)

        while True:
            try:
                producer.produce(topic, value=value, key=key, on_delivery=report)
                return
            except BufferError:
                producer.poll(0.1)
            except KafkaException as error:
                if error.args[0].fatal():
                    raise
                self.error = error.args[0]
                return


def _away(error: Exception) -> str:
    reason = error.args[0].str() if isinstance(error, KafkaException) else error
    return f"the broker did not acknowledge: {reason}"
