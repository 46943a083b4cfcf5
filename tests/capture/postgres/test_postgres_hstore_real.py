"""The extension hstore on a real Postgres: the same object from the snapshot and from the stream."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from headwater.capture.captures import describe
from headwater.capture.change import TableSchema

from .follower import Follower, rows_of

pytestmark = [
    pytest.mark.real,
    # Debian's Postgres has the extension; the wheel with 18 does not.
    pytest.mark.parametrize("server", [15], indirect=True, ids=["on-postgres-15"]),
]

HARD = (
    r'"a"=>"1", "b"=>NULL, "c"=>"NULL", ""=>"", "q\"u\\o"=>"=>, \"x\"", "ü"=>"tab	line'
    + "\n"
    + r'", " "=>"  "'
)
OBJECT = {"a": "1", "b": None, "c": "NULL", "": "", 'q"u\\o': '=>, "x"', "ü": "tab\tline\n", " ": "  "}


@pytest.mark.parametrize("place", ["public", "extensions"])
def test_pairs_are_an_object_from_the_snapshot_and_the_stream(
    url: str, sql: psycopg.Connection[Any], place: str
) -> None:
    sql.execute(f"CREATE SCHEMA IF NOT EXISTS {place}".encode())
    sql.execute(f"CREATE EXTENSION hstore SCHEMA {place}".encode())
    sql.execute(f"CREATE DOMAIN labels AS {place}.hstore".encode())
    sql.execute(
        f"CREATE TABLE items (id int PRIMARY KEY, h {place}.hstore, d labels, a {place}.hstore[])".encode()
    )
    insert = f"INSERT INTO items VALUES (%s, %s, %s, ARRAY[%s::{place}.hstore, NULL])".encode()
    sql.execute(insert, (1, HARD, '"x"=>"1"', HARD))
    with Follower(url, ["items"]) as follower:
        follower.settle()
        sql.execute(insert, (2, HARD, '"x"=>"1"', HARD))
        sql.execute(insert, (3, "", None, ""))
        sql.execute("UPDATE items SET h = NULL WHERE id = 3")
        follower.settle()
        assert follower.ops() == "rccu"
        first, second, third, fourth = (change.after for change in follower.changes)
        assert first is not None
        assert second is not None
        assert first[1:] == second[1:]  # to the letter
        assert [json.loads(cell or b"null") for cell in first[1:]] == [OBJECT, {"x": "1"}, [OBJECT, None]]
        assert [json.loads(cell or b"null") for cell in (third or ())[1:]] == [{}, None, [{}, None]]
        assert (fourth or ())[1] in (None, b"null")
        assert follower.rows["public.items"].keys() == rows_of(url, ["items"])["public.items"].keys()
        assert types(follower.changes[0].table) == ["int", "map<string,string>", "map<string,string>",
                                                    "array<map<string,string>>"]  # fmt: skip
    [described] = describe(f"{url}#items")
    assert types(described) == types(follower.changes[0].table)


def types(table: TableSchema) -> list[str]:
    return [column.type for column in table.columns]


def test_another_type_of_that_name_is_text(url: str, sql: psycopg.Connection[Any]) -> None:
    sql.execute("CREATE TYPE hstore AS ENUM ('a', 'b')")
    sql.execute("CREATE TABLE items (id int PRIMARY KEY, h hstore)")
    sql.execute("INSERT INTO items VALUES (1, 'a')")
    with Follower(url, ["items"]) as follower:
        follower.settle()
        assert types(follower.changes[0].table) == ["int", "string"]
        assert (follower.changes[0].after or ())[1] == b'"a"'
