"""Addresses of databases and tables, and the topics that they go to."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.app import App
from headwater.capture.captures import capture_of, captures_of_app, describe, resolve_tables
from headwater.capture.change import TableSchema
from headwater.capture.databases import Database, databases_of
from headwater.capture.source import CaptureError
from headwater.capture.topics import Naming

from .sqlite_model import make


def test_tables_are_gathered_by_database() -> None:
    found = databases_of(
        [
            "postgresql://ann:secret@db/shop?sslmode=require#public.users",
            "sqlite:///a.db#x,y",
            "sqlite:///a.db#z",
        ]
    )
    assert found == [
        Database("postgresql://ann:secret@db/shop?sslmode=require", ("public.users",)),
        Database("sqlite:///a.db", ("x", "y", "z")),
    ]
    assert [(each.connector, each.name) for each in found] == [("postgresql", "shop"), ("sqlite", "a")]
    assert str(found[0]) == "postgresql://ann@db/shop"
    assert "secret" not in repr(found)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("oracle://db/shop#users", "oracle:// is no database that can be captured"),
        ("sqlite:///a.db", "names no table"),
        ("mysql://ann:secret@db/shop#", "mysql://ann@db/shop names no table"),
    ],
)
def test_addresses_that_do_not_fit_are_named(address: str, said: str) -> None:
    with pytest.raises(CaptureError, match=said) as raised:
        databases_of([address])
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("letter", ["/", "?", "#", "["])
def test_a_password_that_ends_too_early_is_not_shown(letter: str) -> None:
    with pytest.raises(CaptureError, match=r"user or the password .* write / as %2F") as raised:
        databases_of([f"postgresql://ann:very{letter}secret@db/shop#users"])
    assert "secret" not in str(raised.value)
    assert "very" not in str(raised.value)


def test_an_at_sign_elsewhere_is_no_password() -> None:
    address = "postgresql://db/shop?user=ann@example&sslmode=require"
    assert databases_of([f"{address}#users"]) == [Database(address, ("users",))]
    assert databases_of(["sqlite:///a@b.db#users"]) == [Database("sqlite:///a@b.db", ("users",))]


def test_one_capture_follows_one_database() -> None:
    capture = capture_of(["sqlite:///shop.db#a", "sqlite:///shop.db#b"])
    assert (capture.name, capture.prefix, capture.database.tables) == ("shop", "shop", ("a", "b"))
    with pytest.raises(CaptureError, match="one capture follows one database"):
        capture_of(["sqlite:///shop.db#a", "sqlite:///other.db#b"])


def test_topics_are_named_after_prefix_schema_and_table() -> None:
    naming = Naming("shop", {"main.users": "people"})
    users, odd = TableSchema("main", "users", (), ()), TableSchema("main", "odd näme", (), ())
    assert naming.topics_of([users, odd]) == {"main.users": "people", "main.odd näme": "shop.main.odd_n_me"}
    with pytest.raises(CaptureError, match=r"share the topic shop\.main\.odd_n_me"):
        naming.topics_of([odd, TableSchema("main", "odd_n me", (), ())])


def test_an_application_declares_what_is_captured(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    make(path, "CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT)").close()
    app = App("shop")
    app.table("users", key="id", source=f"sqlite:///{path}#people", partitions=2)
    app.table("cards", "id bigint, n string", key="id", source=f"sqlite:///{path}#cards", envelope="flat")
    app.table("rates", "id bigint, n string", key="id", source="sqlite:////elsewhere/shop.db#rates")
    first, second = captures_of_app(app)
    assert first.name == "shop.shop"
    assert second.name == f"shop.shop-{second.database.fingerprint}"
    assert first.database.tables == ("people", "cards")
    assert first.topics == {"people": "users", "cards": "cards"}
    assert first.flat == {"cards"}
    assert first.partitions_of == {"users": 2, "cards": 4}
    resolve_tables(app)
    users = app.definitions["users"]
    assert getattr(users, "schema", None) == "id bigint, name string"


def test_a_table_is_described(tmp_path: Path) -> None:
    make(tmp_path / "shop.db", "CREATE TABLE t (a, b INT, PRIMARY KEY (b, a))").close()
    [table] = describe(f"sqlite:///{tmp_path}/shop.db#t")
    assert table.key == ("b", "a")
