"""Maintained joins against a join of the tables as they are after each batch."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from headwater.pipeline.keyed.logic import unpack
from headwater.pipeline.lookups import TableError
from headwater.pipeline.table_joins import (
    LEFT,
    MaintainedJoin,
    MemoryPages,
    Rekey,
    Shape,
    Side,
    TableJoin,
)
from headwater.pipeline.table_joins.shape import How

from .reference import Table, apply, joined

EMPLOYEES = Side("employees", ("employee", "name", "department"), ("employee",))
DEPARTMENTS = Side("departments", ("id", "title"), ("id",))
BADGES = Side("badges", ("badge", "team"), ("badge",))
OFFICES = Side("offices", ("department", "floor", "size"), ("department", "floor"))

SHAPES: dict[str, tuple[Side, Side, Any]] = {
    "foreign key": (EMPLOYEES, DEPARTMENTS, {"department": "id"}),
    "many to many": (EMPLOYEES, BADGES, {"department": "team"}),
    "part of a key": (EMPLOYEES, OFFICES, "department"),
    "one to many": (DEPARTMENTS, EMPLOYEES, {"id": "department"}),
}
VALUES = {"employee": range(5), "name": "xy", "department": [None, 1, 2], "id": [1, 2], "title": ["p", None]}
VALUES |= {"badge": range(3), "team": [None, 1, 2], "floor": [0, 1], "size": [7, 8]}


@st.composite
def changes(draw: st.DrawFn, side: Side) -> tuple[bool, tuple[Any, ...]]:
    row = tuple(draw(st.sampled_from(VALUES[name])) for name in side.columns)
    return draw(st.booleans()), row


def change_of(side: Side, version: int, deleted: bool, row: tuple[Any, ...]) -> tuple[Any, ...]:
    if deleted:  # all that a tombstone knows
        row = tuple(
            value if name in side.key else None for name, value in zip(side.columns, row, strict=True)
        )
    return (version, deleted, *row)


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("how", ["inner", "left", "full"])
@settings(max_examples=examples(40))
@given(data=st.data())
def test_the_changelog_is_what_turns_one_join_into_the_next(kind: str, how: How, data: st.DataObject) -> None:
    one, other, on = SHAPES[kind]
    shape = Shape.of(one, other, on, how)
    join = MaintainedJoin(shape)
    left: Table = {}
    right: Table = {}
    result: Table = {}
    version = 0
    for _ in range(data.draw(st.integers(1, 6))):
        ours = data.draw(st.lists(changes(one), max_size=6))
        theirs = data.draw(st.lists(changes(other), max_size=4))
        # Rows of a batch come in any order, and their versions say which is the last.
        numbered = [(version + n, deleted, row) for n, (deleted, row) in enumerate(ours + theirs)]
        version += len(numbered)
        batch = join.batch(
            data.draw(st.permutations([change_of(one, *each) for each in numbered[: len(ours)]])),
            data.draw(st.permutations([change_of(other, *each) for each in numbered[len(ours) :]])),
        )
        apply(left, one, ours)
        apply(right, other, theirs)
        keys = [shape.key_of(row) for row in batch]
        assert len(keys) == len(set(keys)), "a key twice in a batch"
        for key, row in zip(keys, batch, strict=True):
            if row[-1]:
                assert key in result, "a delete of what was not there"
                del result[key]
            else:
                without = row[shape.columns.index(shape.on[0][0])] is None
                assert without or result.get(key) != row[:-1], "an upsert that changes nothing"
                result[key] = row[:-1]
        assert result == joined(shape, left, right)
    rows = {(0, *key) for key in left} | {(1, *key) for key in right}
    kept = [unpack(state) for state in join.groups.values()]
    assert sum(head[0][0] + head[1][0] for head in kept) <= len(rows)
    assert all(head[0][0] + head[1][0] for head in kept), "a group without rows has state"


def test_a_changed_foreign_key_retracts_at_the_old_one() -> None:
    shape = Shape.of(EMPLOYEES, DEPARTMENTS, {"department": "id"}, "inner")
    rekey = Rekey(shape, LEFT)
    first = rekey.step((7,), None, [(1, False, 7, "Ann", 1)], 0)
    assert first.out == [(1, False, 1, 7, "Ann", 1)]
    moved = rekey.step((7,), first.state, [(2, False, 7, "Ann", 2)], 0)
    assert moved.out == [
        (1, True, 2, 7, None, None),
        (2, False, 2, 7, "Ann", 2),
    ]
    gone = rekey.step((7,), moved.state, [(3, True, 7, None, None)], 0)
    assert gone == (None, [(2, True, 3, 7, None, None)], None)
    assert rekey.step((7,), None, [(3, True, 7, None, None)], 0) == (None, [], None)
    assert rekey.step((None,), None, [(3, False, None, "x", 1)], 0) == (None, [], None)


def test_an_employee_who_moves_is_one_upsert() -> None:
    join = MaintainedJoin(Shape.of(EMPLOYEES, DEPARTMENTS, {"department": "id"}, "inner"))
    join.batch([(1, False, 7, "Ann", 1)], [(1, False, 1, "Sales"), (2, False, 2, "Support")])
    assert join.batch([(2, False, 7, "Ann", 2)]) == [(7, "Ann", 2, "Support", False)]
    assert join.batch([(3, False, 7, "Ann", None)]) == [(7, None, None, None, True)]
    assert join.batch([(4, False, 7, "Ann", 2), (5, True, 7, None, None)]) == []


PEOPLE = 100_000


def test_a_department_of_100_000_is_renamed_and_one_of_them_changes() -> None:
    shape = Shape.of(EMPLOYEES, DEPARTMENTS, {"department": "id"}, "inner")
    join = MaintainedJoin(shape)
    people = [(n, False, n, f"employee {n}", 1) for n in range(PEOPLE)]
    assert len(join.batch(people, [(0, False, 1, "Sales")])) == PEOPLE
    pages, state = join.pages[1,], join.groups[1,]
    assert len(state) < 100
    total = sum(len(page) for page in pages.pages.values())
    assert max(len(page) for page in pages.pages.values()) < total / 200

    pages.bytes_read = pages.bytes_written = 0
    renamed = join.batch(right=[(1, False, 1, "Marketing")])
    assert sorted(renamed) == sorted((n, f"employee {n}", 1, "Marketing", False) for n in range(PEOPLE))
    assert pages.bytes_written == 0, "the employees are written again though none of them changed"
    assert pages.bytes_read == total, "a page is read more than once"

    pages.bytes_read = 0
    assert join.batch([(PEOPLE, False, 5, "Ann", 1)]) == [(5, "Ann", 1, "Marketing", False)]
    assert 0 < pages.bytes_written < total / 200
    assert pages.bytes_read < total / 200

    assert len(join.batch([(PEOPLE + 1, True, n, None, None) for n in range(PEOPLE)])) == PEOPLE
    assert not pages.pages


def test_columns_that_are_added_at_the_end_are_null_in_rows_kept_before() -> None:
    old = TableJoin(Shape.of(EMPLOYEES, DEPARTMENTS, {"department": "id"}, "inner"))
    wide = Side("employees", (*EMPLOYEES.columns, "mail"), ("employee",))
    new = TableJoin(Shape.of(wide, DEPARTMENTS, {"department": "id"}, "inner"))
    for count in (1, 100):
        pages = MemoryPages()
        rows = [(LEFT, False, n, n, "Ann", 1, None, None) for n in range(count)]
        state = old.step((1,), None, rows, 0, pages).state
        step = new.step((1,), state, [(1, False, 1, None, None, None, None, 1, "Sales")], 0, pages)
        assert sorted(step.out) == [(n, "Ann", 1, None, "Sales", False) for n in range(count)]


def test_what_cannot_be_joined_is_refused() -> None:
    with pytest.raises(TableError, match=r'how=.right. is no join of tables; use "inner", "left" or "full"'):
        Shape.of(EMPLOYEES, DEPARTMENTS, {"department": "id"}, "right")  # type: ignore[arg-type]
    with pytest.raises(TableError, match="departments has no column department; it has id, title"):
        Shape.of(EMPLOYEES, DEPARTMENTS, "department", "inner")
    with pytest.raises(TableError, match="both sides of join_tables have title; rename"):
        Shape.of(Side("jobs", ("id", "title"), ("id",)), DEPARTMENTS, "id", "inner")


@pytest.mark.parametrize(
    ("kind", "how", "key", "nets"),
    [
        ("foreign key", "inner", ("employee",), True),
        ("foreign key", "full", ("employee", "department"), False),
        ("many to many", "left", ("employee", "badge"), True),
        ("part of a key", "inner", ("employee", "department", "floor"), False),
        ("one to many", "inner", ("id", "employee"), False),
    ],
)
def test_the_key_of_the_result(kind: str, how: How, key: tuple[str, ...], nets: bool) -> None:
    shape = Shape.of(*SHAPES[kind], how)
    assert (shape.key, shape.needs_net) == (key, nets)
