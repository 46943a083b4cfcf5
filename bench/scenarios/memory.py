"""How much memory a broker holds."""

from __future__ import annotations

import random
import string
import time
from collections.abc import Mapping
from pathlib import Path

from bench import tools
from bench.brokers import Broker
from bench.clients import create_topics
from bench.figures import Better, Figure, Limit
from bench.process import resident_megabytes
from bench.scenarios.base import Scale, Scenario

TOTAL_BYTES = 10_000_000_000
SMALLEST, LARGEST = 1_000, 10_000
PAYLOADS = 1_000
PARTITIONS = 4
SETTLE_SECONDS = 2.0


class Memory(Scenario):
    """Resident memory once a first client has come and gone, and again after 10 GB went in and out."""

    name = "memory"
    figures = (
        Figure("memory-idle", "resident, idle", "MB", Better.LOWER, (Limit(60, "MB"),)),
        Figure("memory-after", "resident, after 10 GB in and out", "MB", Better.LOWER, (Limit(150, "MB"),)),
    )

    def run(self, broker: Broker, scratch: Path, scale: Scale) -> Mapping[str, float]:
        """Let a client produce and consume one record, look, then let 10 GB through, and look again."""
        create_topics(broker.bootstrap, ["first", "bench"], PARTITIONS)
        tools.produce(broker.bootstrap, "first", 1)
        tools.consume(broker.bootstrap, "first", 1)
        time.sleep(SETTLE_SECONDS)
        idle = resident_megabytes(broker.pid)

        payloads = scratch / "payloads"
        mean = write_payloads(payloads)
        records = scale.of(TOTAL_BYTES) // mean
        tools.produce(broker.bootstrap, "bench", records, payloads=payloads)
        tools.consume(broker.bootstrap, "bench", records)
        time.sleep(SETTLE_SECONDS)
        return {"memory-idle": idle, "memory-after": resident_megabytes(broker.pid)}


def write_payloads(file: Path, count: int = PAYLOADS) -> int:
    """Write values of 1 to 10 KB, one a line and the same every time, and return their mean size in bytes."""
    draw = random.Random(1)
    sizes = [draw.randint(SMALLEST, LARGEST) for _ in range(count)]
    file.write_text("\n".join("".join(draw.choices(string.ascii_letters, k=size)) for size in sizes))
    return sum(sizes) // count
