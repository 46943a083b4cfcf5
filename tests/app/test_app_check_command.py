"""`headwater check`: the graph, as a tree or as JSON, or one message and status 1."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from headwater.cli import main

from .conftest import Write

SHOP = """\
from headwater import App

app = App("shop")
app.topic("orders", "order_id string, placed_at timestamp", key="order_id",
          event_time="placed_at", lateness="2 minutes", late="aside")
app.topic("payments", "order_id string, paid_at timestamp", event_time="paid_at", ahead="1 hour",
          late="correct", corrections="1 hour", format="avro")
app.table("users", key="user_id", source="postgresql://me:s@cret@db/shop#public.users")
app.table("products", "id string NOT NULL, price double", key="id")

@app.stream(key="order_id")
def order_status(orders, payments): ...

@app.view(key=["window", "country"], mode="changes")
def revenue(order_status): ...

@app.view(key="id", mode="changes")
def prices(products): ...

@app.sink(of="revenue", key="window")
def mail(deliveries): ...

@app.alert(to="https://hooks.example/fraud")
def fraud(orders): ...
"""

TREE = """\
shop  shop.py:3
├── topic orders  key order_id, event time placed_at, lateness 2 minutes, late ones set aside in orders.late
│   ├── stream order_status  reads orders and payments, key order_id, mode append
│   │   └── view revenue  key window and country, mode changes
│   │       └── sink mail  key window
│   └── alert fraud  to https://hooks.example/fraud
├── topic payments  event time paid_at, lateness 0 seconds, ahead 1 hour, late ones correct for 1 hour, format avro
│   └── stream order_status  see above
├── table users  key user_id, from postgresql://me:***@db/shop#public.users, envelope debezium
│   └── read by nothing
└── table products  key id, envelope flat
    └── view prices  key id, mode changes
"""


def test_a_pipe_gets_json(write: Write) -> None:
    result = CliRunner().invoke(main, ["check", write(SHOP)])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert (document["app"], document["where"], document["dead_letters"]) == (
        "shop",
        "shop.py:3",
        "shop.dead",
    )
    by_name = {each["name"]: each for each in document["definitions"]}
    assert [*by_name] == [
        "orders",
        "payments",
        "users",
        "products",
        "order_status",
        "revenue",
        "prices",
        "mail",
        "fraud",
    ]
    assert by_name["order_status"] == {
        "kind": "stream",
        "name": "order_status",
        "where": "shop.py:11",
        "inputs": ["orders", "payments"],
        "key": ["order_id"],
        "mode": "append",
        "format": "json",
        "partitions": None,
        "event_time": None,
        "lateness_ms": 0,
        "idle_ms": 60000,
    }
    assert by_name["users"]["source"] == "postgresql://me:***@db/shop#public.users"
    assert by_name["users"]["schema"] is None
    assert by_name["products"]["source"] is None
    assert by_name["products"]["schema"] == "id string NOT NULL, price double"
    assert by_name["fraud"]["to"] == "https://hooks.example/fraud"


def test_a_terminal_gets_a_tree(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.cli.check.wants_json", lambda as_json: as_json)
    monkeypatch.setenv("COLUMNS", "120")
    result = CliRunner().invoke(main, ["check", write(SHOP)])
    assert result.exit_code == 0, result.output
    assert [line.rstrip() for line in result.stdout.splitlines()] == TREE.splitlines()


def test_a_refusal_is_one_message_and_status_1(write: Write) -> None:
    path = write(SHOP.replace("def revenue(order_status)", "def revenue(order_stats)"))
    result = CliRunner().invoke(main, ["check", path])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "Error: shop.py:14: revenue reads order_stats, which is not declared (did you mean order_status?); "
        "there are orders, payments, users, products, order_status\n"
    )
