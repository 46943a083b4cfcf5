"""Kafka transactions of one capture: whoever opens them shuts out who had them before.

librdkafka's producer, with its errors told as what to do about them: a `TryAgain` where another try, with everything
opened anew, may go well, a `CaptureError` where somebody has to do something. After either, nobody knows what became of
the transaction; who opens the capture next finds out.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from headwater.capture.source import CaptureError, TryAgain
from headwater.client.topic_settings import MAX_RECORD_BYTES
from headwater.core.urls import KafkaUrl

__all__ = ["OPEN_SECONDS", "Transactions", "transactional_id"]

OPEN_SECONDS = 30.0
_TRANSACTION_SECONDS = 60.0
"""After so long the broker gives up a transaction whose capture is gone, and lets readers pass."""
_BUFFER_KB = 64 * 1024
_SILENT = logging.Logger("librdkafka", logging.CRITICAL + 1)
"""Takes librdkafka's own log, which says on stderr what is raised here anyway."""
_FENCED = (
    KafkaError._FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
)
_NEEDS_SOMEBODY = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.INVALID_RECORD,
    KafkaError._AUTHENTICATION,
)


def transactional_id(capture: str) -> str:
    """Return the id by which the transactions of a capture are known."""
    return f"headwater.capture.{capture}"


class Transactions:
    """One transaction after another."""

    def __init__(self, url: KafkaUrl, capture: str, properties: Mapping[str, Any]) -> None:
        self._url = url
        self._capture = capture
        self._begun_at: float | None = None
        self._fatal: KafkaError | None = None
        self._producer = Producer(
            {
                **url.properties(),
                "client.id": "headwater-capture",
                "log_level": 0,
                "transactional.id": transactional_id(capture),
                "transaction.timeout.ms": int(_TRANSACTION_SECONDS * 1000),
                "partitioner": "murmur2_random",
                "linger.ms": 20,
                "compression.type": "lz4",
                "message.max.bytes": MAX_RECORD_BYTES,
                "queue.buffering.max.kbytes": _BUFFER_KB,
                "queue.buffering.max.messages": 500_000,
                **properties,
            },
            logger=_SILENT,
            error_cb=self._notice,
        )
        self.produce: Callable[..., None] = self._producer.produce
        """Hands over one record as fast as it goes; where it raises, `send` says what to do about it."""
        self._call(lambda: self._producer.init_transactions(OPEN_SECONDS))

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open."""
        return self._begun_at is not None

    def begin(self) -> None:
        """Open a transaction unless one is open."""
        if self._begun_at is None:
            self._call(self._producer.begin_transaction)
            self._begun_at = time.monotonic()

    def send(self, topic: str, key: bytes, value: bytes | None, stamp: int = 0) -> None:
        """Hand over one record, and wait while there are too many; without a stamp, it is of now."""
        deadline = time.monotonic() + _TRANSACTION_SECONDS
        while True:
            try:
                self._call(lambda: self._producer.produce(topic, value, key, timestamp=stamp))
                return
            except BufferError:
                if time.monotonic() > deadline:
                    raise TryAgain(f"{self._url} took no records for {_TRANSACTION_SECONDS:.0f} s") from None
                self._call(lambda: self._producer.poll(0.01))

    def commit(self) -> None:
        """End the transaction: all of it is there from now on."""
        self._call(lambda: self._producer.commit_transaction(_TRANSACTION_SECONDS))
        self._begun_at = None

    def close(self) -> None:
        """Abort a transaction that is open; where that fails, whoever opens the capture next does."""
        if self._begun_at is not None:
            with suppress(KafkaException):
                self._producer.purge()
                self._producer.abort_transaction(5)

    def _call(self, action: Callable[[], Any]) -> None:
        try:
            action()
        except KafkaException as error:
            raise self._problem(error.args[0]) from error

    def _notice(self, error: KafkaError) -> None:
        """Keep what made the producer useless: what it is asked afterwards fails without saying why."""
        if error.fatal():
            self._fatal = error

    def _problem(self, error: KafkaError) -> CaptureError:
        if error.code() == KafkaError._FATAL:
            try:
                self._producer.poll(0)
            except KafkaException as reason:
                error = reason.args[0]
            error = self._fatal or error
        code = error.code()
        if code in _FENCED:
            if self._begun_at is not None and time.monotonic() - self._begun_at > _TRANSACTION_SECONDS / 2:
                return TryAgain(f"{self._url} gave up a transaction that took too long")
            return CaptureError(
                f"another process captures {self._capture!r} now: stop one of them, or give this one another --name"
            )
        if code == KafkaError.MSG_SIZE_TOO_LARGE:
            return CaptureError(
                f"a row of {self._capture!r} is larger than its topic takes: raise the topic's max.message.bytes with"
                " `headwater topics alter`; capture itself sends up to 32 MB"
            )
        if code in _NEEDS_SOMEBODY:
            return CaptureError(f"{self._url} refuses what {self._capture!r} publishes: {error.str()}")
        return TryAgain(f"{self._url}: {error.str()}")
