"""`headwater.testing`: applications on rows, and what they give."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater.app import App, Delivery
from headwater.pipeline.joins import join_within
from headwater.pipeline.sinks.columns import SinkError
from headwater.pipeline.windows import tumbling
from headwater.testing import advance, replay, run_app, run_function
from headwater.testing.rows_source import Items, RowsError

pytestmark = pytest.mark.real

delivered: list[Delivery] = []


def shop() -> App:
    app = App("shop")
    app.topic(
        "orders",
        "order_id string, user string, amount double, placed_at timestamp",
        key="order_id",
        event_time="placed_at",
        lateness="1 minute",
    )
    app.topic("payments", "order_id string, paid_at timestamp", key="order_id", event_time="paid_at")
    app.topic("visits", "user string, gone boolean")

    @app.view(key=["window"])
    def revenue(orders: DataFrame) -> DataFrame:
        return (
            orders.transform(tumbling("placed_at", "1 minute"))
            .groupBy("window")
            .agg(F.sum("amount").alias("sum"))
        )

    @app.stream(key="order_id", event_time="placed_at")
    def status(orders: DataFrame, payments: DataFrame) -> DataFrame:
        joined = join_within(orders, payments, on="order_id", within="10 minutes", how="left")
        return joined.select("order_id", "placed_at", F.col("paid_at").isNotNull().alias("paid"))

    @app.stream(key="window")
    def paid_share(status: DataFrame) -> DataFrame:
        windows = status.transform(tumbling("placed_at", "1 hour"))
        return windows.groupBy("window").agg(F.avg(F.col("paid").cast("double")).alias("share"))

    @app.view(key="user", mode="changes")
    def present(visits: DataFrame) -> DataFrame:
        return visits.select("user", F.col("gone").alias("_deleted"))

    @app.alert(to="https://hooks.example/large")
    def large(orders: DataFrame) -> DataFrame:
        return orders.where("amount > 100").select("order_id")

    @app.sink(of="status", key="order_id")
    def mail(deliveries: list[Delivery]) -> None:
        delivered.extend(deliveries)

    return app


def at(minute: int, second: int = 0, hour: int = 12) -> datetime:
    return datetime(2026, 3, 1, hour, minute, second, tzinfo=UTC)


def order(number: int, minute: int, amount: float = 1.0) -> dict[str, Any]:
    return {"order_id": str(number), "user": "u", "amount": amount, "placed_at": at(minute)}


INPUTS: dict[str, Items] = {
    "orders": [[order(1, 0), order(2, 0, 500.0)], [order(3, 5)], advance("2 hours")],
    "payments": [[{"order_id": "1", "paid_at": "2026-03-01T12:03:00Z"}]],
    "visits": [{"user": "a", "gone": False}, {"user": "b", "gone": False}, {"user": "a", "gone": True}],
}


@pytest.fixture(scope="module")
def outputs() -> dict[str, Any]:
    delivered.clear()
    return run_app(shop(), INPUTS)


def test_a_view_gives_the_rows_it_holds_in_the_end(outputs: dict[str, Any]) -> None:
    assert outputs["revenue"] == [
        {"window": {"start": at(0), "end": at(1)}, "sum": 501.0},
        {"window": {"start": at(5), "end": at(6)}, "sum": 1.0},
    ]


def test_a_stream_gives_what_it_emitted_in_order(outputs: dict[str, Any]) -> None:
    assert outputs["status"][0] == {"order_id": "1", "placed_at": at(0), "paid": True}
    assert {(row["order_id"], row["paid"]) for row in outputs["status"]} == {
        ("1", True),
        ("2", False),
        ("3", False),
    }


def test_a_stream_is_read_by_the_next_function(outputs: dict[str, Any]) -> None:
    assert outputs["paid_share"] == [
        {"window": {"start": at(0), "end": at(0, hour=13)}, "share": pytest.approx(1 / 3)}
    ]


def test_changes_delete_rows_of_a_view(outputs: dict[str, Any]) -> None:
    assert outputs["present"] == [{"user": "b"}]


def test_an_alert_gives_its_rows(outputs: dict[str, Any]) -> None:
    assert outputs["large"] == [{"order_id": "2"}]


def test_a_sink_is_called(outputs: dict[str, Any]) -> None:
    assert [each.id for each in delivered] == [row["order_id"] for row in outputs["status"]]
    assert outputs["mail"] == [each.row for each in delivered]


def test_one_function_runs_alone_on_rows_of_the_stream_it_reads() -> None:
    rows = [
        {"order_id": "1", "placed_at": at(0), "paid": True},
        {"order_id": "2", "placed_at": at(1), "paid": False},
    ]
    assert run_function(shop(), "paid_share", {"status": rows}) == []
    (row,) = run_function(shop(), "paid_share", {"status": rows}, drain=True)
    assert row["share"] == 0.5


def test_late_rows_are_left_out() -> None:
    on_time_and_late: Items = [[order(1, 10)], [order(2, 9), order(3, 8)], advance("1 hour")]
    rows = run_function(shop(), "revenue", {"orders": on_time_and_late})
    assert {row["window"]["start"] for row in rows} == {at(10), at(9)}


def test_late_rows_are_set_aside_where_declared() -> None:
    app = App("aside")
    app.topic("ticks", "t timestamp", event_time="t", late="aside")

    @app.stream(key="t")
    def seen(ticks: DataFrame) -> DataFrame:
        return ticks

    outputs = run_app(app, {"ticks": [[{"t": at(5)}], [{"t": at(4)}, {"t": at(5)}]]})
    assert outputs == {"seen": [{"t": at(5)}, {"t": at(5)}], "ticks.late": [{"t": at(4)}]}


def test_a_row_that_is_far_ahead_does_not_move_time() -> None:
    app = App("ahead")
    app.topic(
        "ticks",
        "t timestamp",
        event_time="t",
        ahead="1 minute",
        late="aside",
        metadata=["_timestamp"],
    )

    @app.stream(key="t")
    def seen(ticks: DataFrame) -> DataFrame:
        return ticks.select("t")

    ahead = {"t": at(9), "_timestamp": at(5)}
    outputs = run_app(app, {"ticks": [[ahead, {"t": at(5), "_timestamp": at(4)}], [{"t": at(5)}]]})
    assert outputs == {"seen": [{"t": at(5)}, {"t": at(5)}], "ticks.late": [ahead]}


def test_a_crash_around_every_commit_changes_nothing() -> None:
    app = App("sums")
    app.topic("ticks", "k string, t timestamp", event_time="t")

    @app.stream(key="k")
    def firsts(ticks: DataFrame) -> DataFrame:
        return ticks.dropDuplicatesWithinWatermark(["k"])

    @app.view(key=["window", "k"])
    def counts(ticks: DataFrame) -> DataFrame:
        return ticks.transform(tumbling("t", "1 minute")).groupBy("window", "k").count()

    batches = [[{"k": "a", "t": at(0)}, {"k": "a", "t": at(0, 5)}], [{"k": "b", "t": at(0, 20)}]]
    outputs = replay(app, {"ticks": batches})
    assert [row["count"] for row in outputs["counts"]] == [2, 1]
    assert [row["k"] for row in outputs["firsts"]] == ["a", "b"]


def test_a_function_that_draws_lots_does_not_survive_a_crash() -> None:
    app = App("lots")
    app.topic("ticks", "n int")

    @app.stream(key="n")
    def seen(ticks: DataFrame) -> DataFrame:
        return ticks.withColumn("luck", F.rand())

    with pytest.raises(AssertionError, match="seen does not repeat itself: epoch 0"):
        replay(app, {"ticks": [{"n": 1}]})


def test_rows_that_do_not_fit_are_refused() -> None:
    with pytest.raises(RowsError, match=r"orders has no column amont; its columns are order_id, user"):
        run_app(shop(), {"orders": [{"order_id": "1", "amont": 1}]})
    with pytest.raises(RowsError, match=r"shop reads no order; give rows for orders, payments, visits"):
        run_app(shop(), {"order": []})
    with pytest.raises(RowsError, match=r"orders: placed_at is 'noon'; give a datetime"):
        run_app(shop(), {"orders": [{"placed_at": "noon"}]})
    with pytest.raises(RowsError, match=r"is no list of rows; give rows as \[\{…\}"):
        run_app(shop(), {"orders": {"order_id": "1"}})  # type: ignore[dict-item]
    with pytest.raises(RowsError, match=r"^orders: amount is text, and the schema says double$"):
        run_function(shop(), "large", {"orders": [{"amount": "much"}]})
    with pytest.raises(RowsError, match="time cannot advance before the first event"):
        run_app(shop(), {"orders": [advance("1 minute")]})


def test_a_row_without_a_key_is_refused_as_it_would_be() -> None:
    with pytest.raises(SinkError, match=r"shop\.present: a row has no key, because user is null"):
        run_function(shop(), "present", {"visits": [{"user": "a", "gone": False}, {"gone": False}]})


def test_without_an_event_there_is_nothing_to_drain() -> None:
    visits: dict[str, Items] = {"visits": [{"user": "a", "gone": False}]}
    assert run_function(shop(), "present", visits, drain=True) == [{"user": "a"}]
