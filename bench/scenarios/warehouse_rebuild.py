"""How fast a warehouse is built of its topic: through Spark, and by one process without it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

from confluent_kafka import Producer

from bench.brokers import Broker
from bench.clients import ClientError, create_topics, require_delivered
from bench.figures import HEADWATER, PROCESS, AtLeast, Better, Figure
from bench.scenarios.base import Scale, Scenario

ROWS = 1_000_000
PARTITIONS = 4
SECONDS = 1800.0
ENGINES = {HEADWATER: "spark", PROCESS: "process"}
APP = """
from headwater import App

app = App("bench")
app.table(
    "articles",
    "id bigint, name string, country string, price double, stock int, changed_at timestamp",
    key="id",
    envelope="debezium",
)
app.warehouse("files", of="articles", engine="{engine}")
"""


class WarehouseRebuild(Scenario):
    """`headwater derived rebuild` of a million rows of six columns, in Debezium's envelope."""

    name = "warehouse-rebuild"
    sides = (PROCESS, HEADWATER)
    figures = (
        Figure(
            "warehouse-rows",
            "warehouse built anew, Spark's start included",
            "rows/s",
            Better.HIGHER,
            (AtLeast(1.0, PROCESS),),
        ),
    )

    def __init__(self, side: str = HEADWATER) -> None:
        self.side = side

    def on(self, side: str) -> Self:
        """Return the scenario for one engine."""
        return type(self)(side)

    def run(self, broker: Broker, scratch: Path, scale: Scale) -> Mapping[str, float]:
        """Fill the topic, and run the command once: the start of Spark is part of it."""
        rows = scale.of(ROWS)
        create_topics(broker.bootstrap, ["articles"], PARTITIONS)
        _produce(broker.bootstrap, rows)
        app = scratch / "shop.py"
        app.write_text(APP.format(engine=ENGINES[self.side]))
        began = time.monotonic()
        done = subprocess.run(
            [
                str(Path(sys.executable).with_name("headwater")),
                "derived",
                "rebuild",
                str(app),
                "files",
                f"--broker=kafka://{broker.bootstrap}",
                f"--data={scratch}",
            ],
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        seconds = time.monotonic() - began
        if done.returncode or f"files is built anew: {rows:,} rows." not in done.stderr:
            raise ClientError(f"the warehouse was not built: {done.stderr[-2000:]}")
        return {"warehouse-rows": rows / seconds}


def _produce(bootstrap: str, rows: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": 1_000_000})
    for key, value in _records(rows):
        while True:
            try:
                producer.produce("articles", value, key)
                break
            except BufferError:
                producer.poll(0.1)
    require_delivered(producer.flush(60))


def _records(rows: int) -> Iterator[tuple[str, str]]:
    countries = ("DE", "FR", "IT", "ES", "PL")
    for number in range(rows):
        after = {
            "id": number,
            "name": f"article {number}",
            "country": countries[number % 5],
            "price": number % 10_000 / 100,
            "stock": number % 50,
            "changed_at": f"2026-01-{number % 28 + 1:02}T10:00:00.{number % 1_000_000:06}Z",
        }
        yield (
            json.dumps({"id": number}),
            json.dumps({"before": None, "after": after, "op": "c", "ts_ms": number}),
        )
