"""Declaring makes frozen definitions that know their line, and leaves functions as they are."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest

from headwater.app import Alert, App, AppError, Delivery, Location, Sink, Stream, Table, Topic, View
from headwater.app.schema import Field, Scalar


@pytest.fixture
def app() -> App:
    return App("shop")


def here() -> int:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def test_a_topic_has_its_defaults(app: App) -> None:
    line = here() + 1
    topic = app.topic("orders", "id: long not null, at timestamp")
    fields = (Field("id", Scalar("bigint"), nullable=False), Field("at", Scalar("timestamp")))
    assert topic == Topic("orders", Location(__file__, line), "id bigint, at timestamp", fields)
    assert app.definitions == {"orders": topic}
    assert app.late_topic("orders") == "orders.late"


def test_a_topic_with_everything(app: App) -> None:
    topic = app.topic(
        "orders",
        "id string, at timestamp",
        key="id",
        event_time="at",
        lateness="2 minutes",
        idle="30 seconds",
        ahead="1 hour",
        late="correct",
        corrections="1 day",
        format="avro",
        partitions=4,
        lost="skip",
        metadata=["_key", "_offset"],
        source="jvm",
        max_rows=1000,
        max_bytes=1_000_000,
    )
    assert dataclasses.replace(topic, where=Location("", 0)) == Topic(
        name="orders",
        where=Location("", 0),
        schema="id string, at timestamp",
        fields=(Field("id", Scalar("string")), Field("at", Scalar("timestamp"))),
        key=("id",),
        event_time="at",
        lateness_ms=120_000,
        idle_ms=30_000,
        ahead_ms=3_600_000,
        late="correct",
        corrections_ms=86_400_000,
        format="avro",
        partitions=4,
        lost="skip",
        metadata=("_key", "_offset"),
        source="jvm",
        max_rows=1000,
        max_bytes=1_000_000,
    )


def test_what_a_record_may_lack_may_be_null(app: App) -> None:
    topic = app.topic(
        "orders", "a array<struct<b: int not null>> not null, c map<int, struct<d: int not null>>"
    )
    assert topic.schema == "a array<struct<b: int>>, c map<int,struct<d: int>>"


def test_a_record_has_a_time_of_its_own(app: App) -> None:
    topic = app.topic("raw", "value string", format="raw", metadata="_timestamp", event_time="_timestamp")
    assert topic.event_time == "_timestamp"


def test_a_table(app: App) -> None:
    table = app.table("users", key=["id"], source="postgresql://h/shop#public.users", schema="id long")
    assert isinstance(table, Table)
    assert (table.key, table.source) == (("id",), "postgresql://h/shop#public.users")
    assert (table.schema, table.envelope) == ("id bigint", "debezium")
    plain = app.table(
        "prices", "sku string not null, since timestamp", key="sku", event_time="since", idle="5 s"
    )
    assert (plain.schema, plain.source, plain.envelope) == ("sku string, since timestamp", None, "flat")
    assert (plain.event_time, plain.lateness_ms, plain.idle_ms) == ("since", 0, 5_000)
    assert app.table("others", "a int", key="a", envelope="debezium").envelope == "debezium"


def test_a_tables_columns_can_come_from_its_database(app: App) -> None:
    assert app.table("users", key="id", source="postgresql://h/shop#users").schema is None
    app.resolve_table("users", "id bigint not null, name string")
    table = app.definitions["users"]
    assert isinstance(table, Table)
    assert table.schema == "id bigint, name string"
    with pytest.raises(AppError, match="key='id' is no column of the schema; the columns are name"):
        app.resolve_table("users", "name string")


def test_functions_are_declared_and_stay_what_they_are(app: App) -> None:
    app.topic("orders", "id string")
    app.topic("payments", "id string")
    line = here() + 2

    @app.view(key=["id", "country"], mode="changes")
    def revenue(orders: Any, payments: Any) -> Any:
        return (orders, payments)

    @app.stream(
        key="id",
        mode="changes",
        format="raw",
        partitions=3,
        event_time="at",
        lateness="1 minute",
        idle="2 minutes",
    )
    def status(orders: Any) -> Any: ...

    @app.alert(to="https://hooks.example/fraud", secret_env="FRAUD_SECRET")
    def fraud(status: Any) -> Any: ...

    @app.sink(of="status", key="id")
    def mail(deliveries: list[Delivery]) -> None: ...

    assert revenue(1, 2) == (1, 2)
    names = [*app.definitions]
    assert names == ["orders", "payments", "revenue", "status", "fraud", "mail"]
    where = [app.definitions[name].where for name in names[2:]]
    assert where[0] == Location(__file__, line)
    assert app.definitions["revenue"] == View(
        "revenue", where[0], ("orders", "payments"), revenue, ("id", "country"), "changes"
    )
    assert app.definitions["status"] == Stream(
        "status", where[1], ("orders",), status, ("id",), "changes", "raw", 3, "at", 60_000, 120_000
    )
    assert app.definitions["fraud"] == Alert(
        "fraud", where[2], ("status",), fraud, "https://hooks.example/fraud", "FRAUD_SECRET"
    )
    sink = app.definitions["mail"]
    assert sink == Sink("mail", where[3], ("status",), mail, ("id",))
    assert isinstance(sink, Sink)
    assert sink.of == "status"
    app.check()


def test_definitions_are_frozen(app: App) -> None:
    topic = app.topic("orders", "id string")
    with pytest.raises(dataclasses.FrozenInstanceError):
        topic.name = "other"  # type: ignore[misc]


def test_functions_come_after_what_they_read(app: App) -> None:
    app.topic("orders", "id string")

    @app.view(key="id")
    def last(third: Any, orders: Any) -> Any: ...

    @app.stream(key="id")
    def third(second: Any, first: Any) -> Any: ...

    @app.stream(key="id")
    def first(orders: Any) -> Any: ...

    @app.stream(key="id")
    def second(first: Any) -> Any: ...

    @app.sink(of="last", key="id")
    def mail(deliveries: list[Delivery]) -> None: ...

    assert [each.name for each in app.ordered()] == ["first", "second", "third", "last", "mail"]


def test_a_refused_declaration_leaves_nothing(app: App) -> None:
    with pytest.raises(Exception, match="key='b' is no column"):
        app.topic("orders", "a int", key="b")
    assert app.definitions == {}


def test_a_view_asks_for_more_than_its_rows(app: App) -> None:
    app.topic("orders", "id string")

    @app.view(key="id", ttl="7 days", indexes=["country", "window.start"], history="30 days")
    def sales(orders: Any) -> Any: ...

    view = app.definitions["sales"]
    assert isinstance(view, View)
    assert (view.ttl_ms, view.history_ms) == (7 * 86_400_000, 30 * 86_400_000)
    assert view.indexes == ("country", "window.start")

    @app.view(key="id", indexes="country")
    def plain(orders: Any) -> Any: ...

    view = app.definitions["plain"]
    assert isinstance(view, View)
    assert (view.ttl_ms, view.indexes, view.history_ms) == (None, ("country",), None)
