"""A shop, followed live: the application that `headwater demo` runs."""

import os

from pyspark.sql import functions as F

from headwater import App, corrected_time, hopping, join_within, lookup, tumbling

app = App("shop")

app.topic("searches", "search_id string, terms string, searched_at timestamp",
          key="search_id", event_time="searched_at", lateness="3 seconds", idle="5 seconds")  # fmt: skip
app.topic("clicks", "search_id string, product string, clicked_at timestamp",
          key="search_id", event_time="clicked_at", lateness="3 seconds", idle="5 seconds")  # fmt: skip
app.topic("orders", "order_id string, country string, amount double, placed_at timestamp",
          key="order_id", event_time="placed_at", lateness="3 seconds", idle="5 seconds")  # fmt: skip
app.topic("payments", "order_id string, paid_at timestamp",
          key="order_id", event_time="paid_at", lateness="3 seconds", idle="5 seconds")  # fmt: skip
app.topic("readings", "sensor string, room string, celsius double, occurred timestamp, sent timestamp, "
          "received timestamp",
          key="sensor", event_time="received", lateness="5 seconds", idle="5 seconds")  # fmt: skip
app.table("products", "terms string, price double",
          key="terms", source=f"sqlite:///{os.environ.get('SHOP_DATABASE', 'shop.db')}#products")  # fmt: skip


@app.view(key=["window", "country"])
def revenue(orders):
    """Revenue per minute and country; a row grows while its minute runs."""
    return (
        orders.transform(tumbling("placed_at", "1 minute"))
        .groupBy("window", "country")
        .agg(F.round(F.sum("amount"), 2).alias("revenue"), F.count("*").alias("orders"))
    )


@app.stream(key="search_id")
def outcomes(searches, clicks):
    """Each search with the product that was clicked within ten seconds, or none."""
    return join_within(searches, clicks, on="search_id", within="10 seconds", how="left").select(
        "search_id", "terms", F.col("product").isNotNull().alias("clicked")
    )


@app.view(key="terms")
def click_rate(outcomes):
    """How often a search for something ends with a click."""
    return outcomes.groupBy("terms").agg(
        F.count("*").alias("searches"), F.round(F.avg(F.col("clicked").cast("int")), 3).alias("click_rate")
    )


@app.stream(key="order_id")
def order_status(orders, payments):
    """Whether an order was paid within ten seconds; known as soon as it is, or cannot be any more."""
    return join_within(orders, payments, on="order_id", within="10 seconds", how="left").select(
        "order_id", "amount", F.when(F.col("paid_at").isNull(), "Unpaid").otherwise("Paid").alias("status")
    )


@app.view(key="status")
def payments_due(order_status):
    """What was ordered, paid and unpaid."""
    return order_status.groupBy("status").agg(
        F.count("*").alias("orders"), F.round(F.sum("amount"), 2).alias("amount")
    )


@app.view(key=["terms", "price"])
def demand(searches, products):
    """How often something was searched for at which price, as the shop's database has it at that moment."""
    return (
        lookup(searches, products, on="terms").groupBy("terms", "price").agg(F.count("*").alias("searches"))
    )


@app.view(key="window")
def spot_checks(orders):
    """Orders in six of every ten seconds: what comes in the gaps between is left out."""
    return (
        orders.transform(hopping("placed_at", size="6 seconds", every="10 seconds"))
        .groupBy("window")
        .agg(F.count("*").alias("orders"), F.max("amount").alias("largest"))
    )


@app.view(key=["window", "room"])
def temperatures(readings):
    """The mean of each room, though no two of its sensors agree on what time it is."""
    at = corrected_time("occurred", "sent", "received")
    return (
        readings.withColumn("at", at)
        .transform(tumbling("at", "10 seconds"))
        .groupBy("window", "room")
        .agg(F.round(F.avg("celsius"), 2).alias("celsius"), F.count("*").alias("readings"))
    )
