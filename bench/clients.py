"""confluent-kafka, as the scenarios use it."""

from __future__ import annotations

import time
from collections.abc import Iterable

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from headwater.core.errors import HeadwaterError

ADMIN_SECONDS = 300
# librdkafka logs that it threw events away on closing and that a killed broker is gone, which is what was wanted.
# What matters comes back from the calls.
QUIET = 2


class ClientError(HeadwaterError):
    """A client's call that did not succeed."""


def create_topics(bootstrap: str, names: Iterable[str], partitions: int, at_once: int = 100) -> None:
    """Create topics with one replica, some in each request, and return once all are there."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": QUIET})
    topics = [NewTopic(name, num_partitions=partitions, replication_factor=1) for name in names]
    for first in range(0, len(topics), at_once):
        some = topics[first : first + at_once]
        created = admin.create_topics(some, request_timeout=ADMIN_SECONDS, operation_timeout=ADMIN_SECONDS)
        for future in created.values():
            future.result()


def end_offsets(bootstrap: str, topics: Iterable[str], partitions: int) -> list[int]:
    """Return the end offset of every partition of these topics, asking again while some are refused.

    Kafka answers for a while after a crash that it does not lead what it is about to lead.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": QUIET})
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    asked = {TopicPartition(topic, partition): latest for topic in topics for partition in range(partitions)}
    deadline = time.monotonic() + ADMIN_SECONDS
    while True:
        answered = admin.list_offsets(asked, request_timeout=ADMIN_SECONDS)
        try:
            return [future.result().offset for future in answered.values()]
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def require_delivered(left: int) -> None:
    """Raise unless a producer's flush left nothing behind."""
    if left:
        raise ClientError(f"{left} records were not delivered in time")
