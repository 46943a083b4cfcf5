"""Orders that meet the newest version of their user: with `lookup`, and as one writes it by hand with Spark's state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from bench.spark import events
from headwater.pipeline.lookups.operator import lookup
from headwater.pipeline.source import TopicSource, read_stream
from headwater.pipeline.tables import Table

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

RESULT = "order_id bigint, user_id bigint, amount double, country string, name string"


def inputs(spark: SparkSession, bootstrap: str) -> tuple[DataFrame, DataFrame]:
    """Return the orders, and the changes of the users: all of them in the first batch, then a tenth of the orders."""
    orders = TopicSource(
        f"kafka://{bootstrap}", events.ORDERS, events.ORDERS_SCHEMA, max_rows=events.BATCH, until_now=True
    )
    users = replace(
        orders,
        topic=events.USERS,
        schema=events.USERS_SCHEMA,
        envelope="flat",
        key=("user_id",),
        max_rows=events.BATCH // 10,
    )
    return read_stream(spark, orders), read_stream(spark, users)


def ours(spark: SparkSession, bootstrap: str) -> DataFrame:
    """Join with `lookup`."""
    orders, users = inputs(spark, bootstrap)
    return lookup(orders, Table("users", ("user_id",), users), on="user_id")


def by_hand(spark: SparkSession, bootstrap: str) -> DataFrame:
    """Join with `transformWithStateInPandas` by user."""
    orders, users = inputs(spark, bootstrap)
    empty = F.lit(None)
    rows = orders.select(
        "user_id", "order_id", "amount", F.lit(-1).cast("bigint").alias("version"),
        F.lit(False).alias("deleted"), empty.cast("string").alias("country"), empty.cast("string").alias("name"),
    ).union(
        users.select(
            "user_id", F.lit(-1).cast("bigint"), F.lit(0.0), "_version", "_deleted", "country", "name",
        )
    )  # fmt: skip
    return rows.groupBy("user_id").transformWithStateInPandas(User(), RESULT, "Append", "None")


class User(StatefulProcessor):
    """One user: the newest version of the row."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Take the handle of the state."""
        self._newest = handle.getValueState("newest", "version bigint, country string, name string")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        """Take the newest change, and then answer the orders."""
        import pandas as pd

        frame = pd.concat(list(rows))
        known = self._newest.get()
        changes = frame[frame["version"] >= 0]
        if len(changes):
            newest = changes.loc[changes["version"].idxmax()] if len(changes) > 1 else changes.iloc[0]
            if known is None or newest["version"] > known[0]:
                if newest["deleted"]:
                    known = None
                    self._newest.clear()
                else:
                    known = (int(newest["version"]), newest["country"], newest["name"])
                    self._newest.update(known)
        orders = frame[frame["version"] < 0][["order_id", "user_id", "amount"]]
        _, country, name = known or (None, None, None)
        yield orders.assign(country=country, name=name)

    def close(self) -> None:
        """Leave nothing open."""
