"""The application whose view is watched: `headwater run` it."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater import App, tumbling

app = App("live")
app.topic(
    "orders",
    "order_id string, user_id string, amount double, placed_at timestamp",
    key="order_id",
    event_time="placed_at",
    lateness="10 seconds",
)


@app.view(key=["window", "user_id"])
def spending(orders: DataFrame) -> DataFrame:
    """Return what each user spent in each window, and the last order that is in it."""
    return (
        orders.transform(tumbling("placed_at", "10 seconds"))
        .groupBy("window", "user_id")
        .agg(
            F.sum("amount").alias("total"),
            F.count("*").alias("orders"),
            F.max("order_id").alias("last_order"),
        )
    )
