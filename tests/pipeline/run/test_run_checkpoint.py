"""What a query may change and still go on from its checkpoint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headwater.pipeline.checkpoint import (
    Checkpoint,
    Fingerprint,
    Operator,
    changed_expressions,
    difference,
    refusal,
)

SUM = Operator("aggregation", ("string",), ("sum as double",), "country, sum(amount) AS revenue")
MADE = Fingerprint("a view of mode rows", ("orders",), (SUM,))


def test_what_did_not_change_goes_on() -> None:
    assert difference(MADE, MADE) is None
    assert changed_expressions(MADE, MADE) == []


@pytest.mark.parametrize(
    ("new", "says"),
    [
        (
            replace(MADE, output="a stream of mode append"),
            "it was a view of mode rows and is now a stream of",
        ),
        (replace(MADE, topics=("orders", "users")), "it read orders and now reads orders, users"),
        (
            replace(MADE, state=()),
            "its state was aggregation by (string), holding sum as double and is now nothing",
        ),
        (
            replace(MADE, state=(replace(SUM, key=("string", "int")),)),
            "its state changed from aggregation by (string), holding sum as double"
            " to aggregation by (string, int), holding sum as double",
        ),
        (replace(MADE, state=(replace(SUM, value=("avg as double",)),)), "holding avg as double"),
    ],
)
def test_what_spark_cannot_resume_is_told(new: Fingerprint, says: str) -> None:
    found = difference(MADE, new)
    assert found is not None
    assert says in found


def test_another_expression_of_the_same_type_goes_on_and_is_told() -> None:
    new = replace(MADE, state=(replace(SUM, text="country, sum(price) AS revenue"),))
    assert difference(MADE, new) is None
    assert changed_expressions(MADE, new) == [(SUM.text, "country, sum(price) AS revenue")]


def test_what_an_older_file_did_not_note_goes_on() -> None:
    new = replace(MADE, state=(replace(SUM, layout="windows of 1 minute"),))
    other = replace(MADE, state=(replace(SUM, layout="windows of 1 hour"),))
    assert difference(MADE, new) is None
    assert "holding sum as double, with windows of 1 hour" in str(difference(new, other))
    older = new.to_json().replace(',\n      "layout": "windows of 1 minute"', "")
    assert Fingerprint.from_json(older) == MADE


def test_columns_may_be_added_at_the_end_of_each_part() -> None:
    def made(value: str, *parts: str) -> Fingerprint:
        names = tuple(tuple(part.split()) for part in parts)
        return replace(MADE, state=(Operator("keyed state", ("int",), tuple(value.split()), "", "", names),))

    old = made("bigint int string double", "id name", "price")
    assert Fingerprint.from_json(old.to_json()) == old
    assert difference(old, made("bigint int string int double", "id name age", "price")) is None
    assert difference(old, made("bigint int string double double", "id name", "price tax")) is None
    for new in (
        made("bigint int double", "id", "price"),
        made("bigint string int double", "name id", "price"),
        made("bigint int string bigint", "id name", "price"),
        made("bigint int string double", "id title", "price"),
        made("int int string double", "id name", "price"),
    ):
        assert difference(old, new) is not None
    before_parts = made("bigint int string double")
    assert difference(before_parts, old) is None
    assert difference(before_parts, made("bigint int string int double", "id name age", "price")) is not None


def test_the_refusal_says_what_to_do() -> None:
    error = refusal("shop.py", [("shop.revenue", "it read orders and now reads sales")])
    assert str(error).splitlines() == [
        "shop.revenue cannot go on from its checkpoint: it read orders and now reads sales.",
        "`headwater run shop.py --reset shop.revenue` starts over, and reads its topics again from their start;"
        " or rename the function, and what it made so far stays. Nothing was touched.",
    ]


def test_the_file_beside_the_checkpoint(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "checkpoints", "shop.revenue")
    assert not checkpoint.exists()
    checkpoint.save(MADE)
    assert checkpoint.saved() is None, "a query that never began an epoch may become another"
    (checkpoint.path / "offsets").mkdir(parents=True)
    (checkpoint.path / "offsets" / "0").touch()
    assert checkpoint.saved() == MADE
    checkpoint.remove()
    assert not checkpoint.exists()
    assert list((tmp_path / "checkpoints").iterdir()) == []
