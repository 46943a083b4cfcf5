"""Which queries of an application have their sources meet."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headwater.app import load
from headwater.pipeline.compile import Reading, compile_app
from headwater.pipeline.source import TopicSource, read_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.real

APP = """
from headwater import App, join_within

app = App("shop")
app.topic("orders", "order_id string, placed_at timestamp", event_time="placed_at")
app.topic("payments", "order_id string, paid_at timestamp", event_time="paid_at")
app.topic("names", "order_id string, name string")

@app.stream(key="order_id")
def status(orders, payments):
    return join_within(orders, payments, on="order_id", within="1 minute", how="left")

@app.stream(key="order_id")
def named(orders, names):
    return orders.join(names, "order_id")

@app.stream(key="order_id")
def plain(orders):
    return orders
"""


def test_the_sources_of_queries_over_several_topics_with_a_time_meet(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "shop.py"
    file.write_text(textwrap.dedent(APP))
    met: set[tuple[str, str | None, str | None]] = set()

    def read(session: SparkSession, source: TopicSource) -> DataFrame:
        met.add((source.topic, source.group, source.meeting))
        return read_stream(session, source)

    compile_app(spark, load(file), Reading("kafka://127.0.0.1:1", meetings=tmp_path), read)
    place = str(tmp_path / "shop.status")
    assert met == {
        ("orders", "headwater.shop.status", place),
        ("payments", "headwater.shop.status", place),
        ("orders", "headwater.shop.named", None),
        ("names", "headwater.shop.named", None),
        ("orders", "headwater.shop.plain", None),
    }
