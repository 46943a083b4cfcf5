"""What `on=` may say."""

from __future__ import annotations

import pytest

from headwater.pipeline.lookups import TableError, key_pairs
from headwater.pipeline.lookups.keys import named_pairs, refuse_clashes

STREAM = ["order_id", "user_id", "shop"]


def test_on_is_the_key_of_the_table_in_its_order() -> None:
    assert key_pairs("user_id", STREAM, "users", ["user_id"], ["user_id", "name"]) == (
        ("user_id", "user_id"),
    )
    assert key_pairs({"user_id": "id"}, STREAM, "users", ["id"], ["id"]) == (("user_id", "id"),)
    pairs = key_pairs({"user_id": "id", "shop": "shop"}, STREAM, "users", ["shop", "id"], ["shop", "id"])
    assert pairs == (("shop", "shop"), ("user_id", "id"))


def test_what_is_no_key_is_refused_with_the_fix() -> None:
    with pytest.raises(TableError, match=r'by its key, id, and on= gives name; write on={"shop": "id"}'):
        key_pairs({"shop": "name"}, STREAM, "users", ["id"], ["id", "name"])
    with pytest.raises(TableError, match=r"its key, shop and id, and on= gives shop; .* or use join_tables"):
        key_pairs("shop", STREAM, "users", ["shop", "id"], ["shop", "id"])
    with pytest.raises(TableError, match=r"users has no column user_id \(did you mean user\?\); it has user"):
        key_pairs("user_id", STREAM, "users", ["user"], ["user"])
    with pytest.raises(TableError, match="the stream has no column user; it has"):
        key_pairs({"user": "id"}, ["order"], "users", ["id"], ["id"])
    with pytest.raises(TableError, match="on= is empty"):
        named_pairs([])
    with pytest.raises(TableError, match="gives id twice"):
        named_pairs({"a": "id", "b": "id"})
    with pytest.raises(TableError, match=r"both sides of lookup have name; rename"):
        refuse_clashes(["name"], ["name"], "lookup")
