"""An application of eight queries that have nothing to do: `headwater run` it."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater import App

QUERIES = 8

app = App("idle")
app.topic("orders", "order_id string, user_id string, amount double, placed_at timestamp", key="order_id")


def spending(orders: DataFrame) -> DataFrame:
    """Return what each user spent."""
    return orders.groupBy("user_id").agg(F.sum("amount").alias("total"), F.count("*").alias("orders"))


for number in range(QUERIES):

    def view(orders: DataFrame) -> DataFrame:
        """Return what each user spent."""
        return spending(orders)

    view.__name__ = f"spending_{number}"
    app.view(key="user_id")(view)
