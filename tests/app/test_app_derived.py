"""Indexes, caches and warehouses as they are declared, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headwater import App
from headwater.app import AppError
from headwater.cli import main


def shop() -> App:
    app = App("shop")
    app.table("users", "id bigint, name string, age int", key="id")
    app.topic("orders", "id bigint")

    @app.stream(key="id")
    def appended(orders: Any) -> Any:
        return orders

    @app.stream(key="id", mode="changes")
    def changed(orders: Any) -> Any:
        return orders

    return app


def test_stores_of_a_table_and_of_a_stream() -> None:
    app = shop()
    app.index("people", of="users", text=["name"])
    app.cache("profiles", of="users", url="redis://localhost/0")
    app.warehouse("files", of="users", path="/data/users", every="1 minute")
    app.cache("totals", of="changed")
    app.warehouse("totals_files", of="changed", schema="id bigint, total double")
    app.check()
    kinds = [(each.kind, each.name, each.of) for each in app.derived()]
    assert kinds == [
        ("index", "people", "users"),
        ("cache", "profiles", "users"),
        ("warehouse", "files", "users"),
        ("cache", "totals", "changed"),
        ("warehouse", "totals_files", "changed"),
    ]


@pytest.mark.parametrize(
    ("declare", "said"),
    [
        (
            lambda app: app.index("x", of="user", text="name"),
            "x is of user, which is not declared.*did you mean users",
        ),
        (lambda app: app.index("x", of="users", text="title"), "text='title' is no column"),
        (lambda app: app.index("x", of="users", text=[]), "text names no column"),
        (lambda app: app.index("x", of="changed", text="name"), "whose columns only Spark knows"),
        (lambda app: app.index("x", of="changed", text="n", schema="n string"), "key='id' is no column"),
        (
            lambda app: app.index("x", of="users", text="name", schema="name string"),
            "has a schema, and so has",
        ),
        (lambda app: app.cache("x", of="orders"), "the topic orders, which does not hold rows by key"),
        (lambda app: app.cache("x", of="appended"), "the stream appended, which does not hold rows by key"),
        (lambda app: app.cache("x", of="users", url="mysql://h"), "mysql://… is no address of a Redis"),
        (lambda app: app.cache("x", of="users", url="h"), "url='h' is no address"),
        (lambda app: app.warehouse("x", of="users", every="often"), "every='often'"),
        (
            lambda app: app.warehouse("x", of="users", engine="sparc"),
            'engine=\'sparc\' is unknown.*did you mean spark.*engine is one of "spark", "process"',
        ),
        (
            lambda app: app.warehouse("x", of="changed", schema="id bigint, _partition int"),
            "has a column _partition, which the warehouse x keeps for itself",
        ),
        (
            lambda app: app.warehouse("x", of="changed", schema="id bigint, _KEY int", engine="process"),
            "has a column _KEY",
        ),
        (lambda app: app.cache("users", of="users"), "users is declared already"),
    ],
)
def test_what_is_refused(declare: Callable[[App], object], said: str) -> None:
    def declare_and_check() -> None:
        app = shop()
        declare(app)
        app.check()

    with pytest.raises(AppError, match=said):
        declare_and_check()


def test_who_writes_a_warehouse() -> None:
    app = shop()
    app.warehouse("files", of="users")
    app.warehouse("others", of="users", engine="process")
    app.check()
    assert [each.name for each in app.spark_warehouses()] == ["files"]


def test_a_function_cannot_read_a_store() -> None:
    app = shop()
    app.cache("profiles", of="users")

    @app.view(key="id")
    def wrong(profiles: Any) -> Any:
        return profiles

    with pytest.raises(AppError, match="wrong reads the cache profiles, which is of users"):
        app.check()


def test_check_shows_them(tmp_path: Path) -> None:
    path = tmp_path / "shop.py"
    path.write_text(
        'from headwater import App\napp = App("shop")\n'
        'app.table("users", "id bigint, name string", key="id")\n'
        'app.index("people", of="users", text="name")\n'
        'app.cache("profiles", of="users", url="redis://:secret@h/0")\n'
    )
    said = json.loads(CliRunner().invoke(main, ["check", str(path)]).output)
    assert [(each["kind"], each["name"]) for each in said["definitions"]] == [
        ("table", "users"),
        ("index", "people"),
        ("cache", "profiles"),
    ]
    assert said["definitions"][2]["url"] == "redis://:***@h/0"
