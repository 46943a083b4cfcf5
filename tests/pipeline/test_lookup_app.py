"""Operators with keyed state in an application, with a crash around every commit; the page on tables among them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater import App, deduplicate, match
from headwater.app import AppError, load
from headwater.pipeline.compile import Reading, compile_app
from headwater.testing import replay, run_function
from headwater.testing.app import session

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tables.md"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def order(number: int, minute: float, **more: Any) -> dict[str, Any]:
    at = NOON + timedelta(minutes=minute)
    return {"order_id": str(number), "user_id": 1, "sku": "a", "placed_at": at, **more}


def test_what_lookups_on_the_page_give_is_the_same_after_a_crash_around_every_commit(tmp_path: Path) -> None:
    path = tmp_path / "shop.py"
    path.write_text(re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)[0])
    orders = [[order(1, 1), order(2, 0), order(3, 2, user_id=None)], [order(4, 3, sku="b"), order(5, 4)]]
    users = [
        [{"user_id": 1, "country": "DE"}],
        [
            {"user_id": 1, "country": "FR", "_changed_at": NOON + timedelta(seconds=30)},
            {"user_id": 1, "_deleted": True, "_changed_at": NOON + timedelta(minutes=3.5)},
        ],
    ]
    products = [[{"sku": "a", "price": 1.0}], [{"sku": "a", "price": 2.0}]]
    outputs = replay(path, {"orders": orders, "users": users, "products": products}, drain=True)
    assert [(row["order_id"], row["price"]) for row in outputs["priced"]] == [
        ("1", 1.0),
        ("2", 1.0),
        ("3", 1.0),
        ("5", 2.0),
    ]
    assert sorted((row["order_id"], row["country"]) for row in outputs["located"]) == [
        ("1", "FR"),
        ("2", "DE"),
        ("3", None),
        ("4", "FR"),
        ("5", None),
    ]


app = App("cards")
app.topic("payments", "id string, card string, amount double, at timestamp", event_time="at", lateness="5 s")


@app.stream(key="card")
def card_tests(payments: DataFrame) -> DataFrame:
    small, large = F.col("amount") < 2, F.col("amount") > 500
    return match(
        payments,
        by="card",
        pattern="small{2,} large",
        define={"small": small, "large": large},
        within="1 minute",
    )


@app.stream(key="id")
def once(payments: DataFrame) -> DataFrame:
    return deduplicate(payments, by="id", within="1 minute")


def test_what_match_and_deduplicate_give_is_the_same_after_a_crash_around_every_commit() -> None:
    def payment(number: int, amount: float) -> dict[str, Any]:
        return {"id": f"p{number}", "card": "c", "amount": amount, "at": NOON + timedelta(seconds=number)}

    outputs = replay(
        app,
        {
            "payments": [
                [payment(2, 1.0), payment(1, 1.5)],
                [payment(2, 1.0), payment(3, 900.0), payment(9, 3.0)],
            ]
        },
        drain=True,
    )
    assert [(row["card"], row["rows"]) for row in outputs["card_tests"]] == [("c", 4)]
    assert sorted(row["id"] for row in outputs["once"]) == ["p1", "p2", "p3", "p9"]


SHOP = """
from headwater import App, lookup

app = App("shop")
app.topic("orders", "order_id string, user_id bigint, placed_at timestamp", key="order_id")
app.table("users", key="user_id", source="postgresql://h/shop#public.users")


@app.stream(key="order_id")
def located(orders, users):
    return lookup(orders, users, on="user_id", as_of="placed_at")


@app.sink(of="users", key="user_id")
def index(deliveries):
    pass
"""


def test_columns_and_times_that_are_missing_are_refused_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "shop.py"
    path.write_text(SHOP)
    shop = load(path)
    reading = Reading("kafka://127.0.0.1:1")
    with pytest.raises(
        AppError, match=r"shop\.py:6: the columns of the table users are not known; write them"
    ):
        compile_app(session(), shop, reading)
    shop.resolve_table("users", "user_id bigint not null, country string")
    with pytest.raises(AppError, match=r"shop\.py:11: located fails: the stream of lookup has no event time"):
        compile_app(session(), shop, reading)


def test_a_sink_of_a_table_is_called_with_its_changes(tmp_path: Path) -> None:
    path = tmp_path / "shop.py"
    path.write_text(SHOP.replace('placed_at timestamp", ', 'placed_at timestamp", event_time="placed_at", '))
    shop = load(path)
    shop.resolve_table("users", "user_id bigint, country string")
    rows = run_function(
        shop, "index", {"users": [{"user_id": 1, "country": "DE"}, {"user_id": 1, "_deleted": True}]}
    )
    assert rows == [
        {"user_id": 1, "country": "DE", "_deleted": False, "_changed_at": None, "_version": 0},
        {"user_id": 1, "country": None, "_deleted": True, "_changed_at": None, "_version": 1},
    ]
