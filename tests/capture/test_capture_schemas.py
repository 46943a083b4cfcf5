"""How tables changed is told in sentences, and kept."""

from __future__ import annotations

import pytest

from headwater.capture.change import Column, TableSchema
from headwater.capture.schemas import Difference, History, Version, compare, ddl
from headwater.capture.source import CaptureError


def table(*columns: str, key: tuple[str, ...] = ("id",)) -> TableSchema:
    made = tuple(
        Column(name, type_, type_.upper()) for name, type_ in (column.split(" ", 1) for column in columns)
    )
    return TableSchema("main", "users", made, key)


OLD = table("id bigint", "name string", "age int")


@pytest.mark.parametrize(
    ("new", "changes", "unmapped"),
    [
        (table("id bigint", "name string", "age int", "note string"), ["note string was added"], []),
        (table("id bigint", "age int"), ["name was dropped"], []),
        (
            table("id bigint", "title string", "age int"),
            ["name is called title now"],
            ["older rows have the values of title under its older name name"],
        ),
        (table("id bigint", "name string", "age bigint"), ["age was int and is bigint now"], []),
        (table("id bigint", "name string", "age string"), ["age was int and is string now"], []),
        (
            table("id bigint", "name bigint", "age int"),
            ["name was string and is bigint now"],
            ["older values of name are string, which bigint does not hold"],
        ),
        (table("id bigint", "age int", "name string"), ["the columns are in another order"], []),
    ],
)
def test_what_changed(new: TableSchema, changes: list[str], unmapped: list[str]) -> None:
    found = compare(OLD, new)
    assert found == Difference(
        tuple(f"main.users: {said}" for said in changes), tuple(f"main.users: {said}" for said in unmapped)
    )


@pytest.mark.parametrize(
    ("old", "new", "holds"),
    [
        ("decimal(10,2)", "decimal(12,2)", True),
        ("decimal(10,2)", "decimal(10,4)", False),
        ("decimal(10,2)", "decimal(12,4)", True),
        ("float", "double", True),
        ("bigint", "double", False),
        ("bigint", "int", False),
        ("timestamp", "date", False),
    ],
)
def test_which_types_hold_older_values(old: str, new: str, holds: bool) -> None:
    found = compare(table("id bigint", f"x {old}"), table("id bigint", f"x {new}"))
    assert (not found.unmapped) is holds


@pytest.mark.parametrize(
    "new",
    [
        table("id bigint", "name string", "age int", key=("id", "name")),
        table("key bigint", "name string", "age int", key=("key",)),
        table("id string", "name string", "age int"),
    ],
)
def test_a_changed_key_cannot_be_mapped(new: TableSchema) -> None:
    with pytest.raises(
        CaptureError, match=r"the key of main\.users was id bigint and is .* `headwater capture snapshot`"
    ):
        compare(OLD, new)


def test_a_widened_key_is_the_same_key() -> None:
    assert compare(table("id int"), table("id bigint")).unmapped == ()


def test_history_notes_a_table_when_it_is_new_and_when_it_changed() -> None:
    history = History("shop")
    first = history.see(OLD, 5)
    assert first == Version("shop", 1, OLD, 5)
    assert history.see(OLD, 6) is None
    assert history.see(table("id bigint", "name string", "age int"), 6) is None  # the same, by another reader
    added = table("id bigint", "name string", "age int", "note string")
    second = history.see(added, 7)
    assert second is not None
    assert (second.number, second.changes) == (2, ("main.users: note string was added",))
    assert history.tables == [added]


def test_history_goes_on_from_what_was_kept() -> None:
    kept = [Version("shop", 1, OLD, 5), Version("other", 9, table("id string"), 6)]
    history = History("shop", [Version.decode(version.encode()) for version in kept])
    assert history.see(OLD, 7) is None
    assert history.keys == [b"shop/main.users/1"]
    changed = history.see(table("id bigint"), 8)
    assert changed is not None
    assert changed.number == 2


def test_columns_as_ddl() -> None:
    assert ddl(table("id bigint", "a`b string")) == "id bigint, `a``b` string"
