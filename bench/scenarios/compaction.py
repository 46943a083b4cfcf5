"""Compaction: ten million records, of which the newest of each key stay."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from bench.brokers import Broker
from bench.clients import ADMIN_SECONDS, QUIET, ClientError, create_topics, require_delivered
from bench.figures import AtLeast, Better, Figure
from bench.scenarios.base import Scale, Scenario

RECORDS = 10_000_000
RECORDS_PER_KEY = 100
VALUE = b"x" * 20
RECORD_BYTES = 45
SEGMENT_BYTES = 16 * 1024 * 1024
TOPIC = "compacted"
POLL_EVERY = 1_000
FLUSH_SECONDS = 300.0
CLEAN_SECONDS = 600.0

_SEGMENT = re.compile(r"[0-9]{20}\.log")


class Compaction(Scenario):
    """From the moment that a topic's policy becomes compact until every closed segment is compacted."""

    name = "compaction"
    figures = (
        Figure("compaction", "compaction, 100 records per key", "records/s", Better.HIGHER, (AtLeast(0.5),)),
    )

    def run(self, broker: Broker, scratch: Path, scale: Scale) -> Mapping[str, float]:
        """Fill a topic that is not compacted, change its policy, and watch its files."""
        records = scale.of(RECORDS)
        keys = max(1, records // RECORDS_PER_KEY)
        create_topics(broker.bootstrap, [TOPIC], 1)
        # The cleaner is to begin when it may, not when it happens to look.
        _configure(broker, ResourceType.BROKER, "1", {"log.cleaner.backoff.ms": "50"})
        _configure(broker, ResourceType.TOPIC, TOPIC, {"segment.bytes": str(SEGMENT_BYTES)})
        _produce(broker.bootstrap, records, keys)
        time.sleep(2)
        began = time.perf_counter()
        _configure(broker, ResourceType.TOPIC, TOPIC, {"cleanup.policy": "compact"})
        _await_clean(scratch.parent / "data", 2 * keys * RECORD_BYTES)
        return {"compaction": records / (time.perf_counter() - began)}


def _configure(broker: Broker, kind: ResourceType, name: str, settings: Mapping[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": QUIET})
    entries = [ConfigEntry(k, v, incremental_operation=AlterConfigOpType.SET) for k, v in settings.items()]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource], request_timeout=ADMIN_SECONDS).values():
        future.result()


def _produce(bootstrap: str, records: int, keys: int) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
    )
    # A step that has no factor in common with the number of keys visits them all in no order to speak of.
    step, key = 61_803, 0
    for first in range(0, records, POLL_EVERY):
        for _ in range(min(POLL_EVERY, records - first)):
            key = (key + step) % keys
            while True:
                try:
                    producer.produce(TOPIC, VALUE, b"key-%08d" % key)
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.poll(0)
    require_delivered(producer.flush(FLUSH_SECONDS))


def _await_clean(data: Path, left: int) -> None:
    """Return when all segments but the growing one hold no more than `left` bytes."""
    deadline = time.monotonic() + CLEAN_SECONDS
    while True:
        files = sorted(path for path in data.rglob("*.log") if _is_segment(path))
        sizes = []
        for path in files[:-1]:
            try:
                sizes.append(path.stat().st_size)
            except FileNotFoundError:
                break  # it was exchanged this very moment
        else:
            if files and sum(sizes) <= left:
                return
        if time.monotonic() > deadline:
            raise ClientError(f"{TOPIC} was not compacted within {CLEAN_SECONDS:.0f} s: {sum(sizes)} bytes")
        time.sleep(0.02)


def _is_segment(path: Path) -> bool:
    return bool(_SEGMENT.fullmatch(path.name)) and any(part.startswith(TOPIC) for part in path.parts)
