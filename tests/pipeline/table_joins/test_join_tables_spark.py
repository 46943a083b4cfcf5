"""`join_tables` on Spark: over several batches and a restart, into a view, and what is refused."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater import as_table, join_tables
from headwater.pipeline.lookups import TableError
from headwater.pipeline.sinks import start_view
from headwater.pipeline.table_joins import Shape, Side
from headwater.pipeline.table_joins.shape import How
from headwater.views import open_store

from .reference import Table as Rows
from .reference import apply, joined
from .scripted import ScriptedTable, drain

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

BIG = 2**53 + 1
"""No double is this number: a column of integers that were doubles on their way would show."""
COLUMNS = {
    "employees": "employee long, name string, department int",
    "departments": "id int, title string, budget decimal(12,2), since timestamp",
    "badges": "badge string, team int, rights array<string>",
    "offices": "department int, floor int, size long",
}
KEYS = {
    "employees": ("employee",),
    "departments": ("id",),
    "badges": ("badge",),
    "offices": ("department", "floor"),
}
VALUES: dict[str, list[Any]] = {
    "employee": [BIG + n for n in range(6)],
    "name": ["Ann", "Bob", None],
    "department": [None, 1, 2, 3],
    "id": [1, 2, 3],
    "title": ["Sales", "Support", None],
    "budget": ["1.50", "99999999.99"],
    "since": ["2026-01-02 03:04:05.678901", None],
    "badge": ["b0", "b1", "b2"],
    "team": [None, 1, 2],
    "rights": [["in"], ["in", "out"]],
    "floor": [0, 1],
    "size": [BIG, 7, None],
}


def side(name: str) -> Side:
    return Side(name, tuple(each.split()[0] for each in COLUMNS[name].split(", ")), KEYS[name])


def random_change(rng: random.Random, table: Side) -> tuple[bool, tuple[Any, ...]]:
    return rng.random() < 0.3, tuple(rng.choice(VALUES[name]) for name in table.columns)


def written(table: Side, change: tuple[bool, tuple[Any, ...]]) -> dict[str, Any]:
    deleted, row = change
    values = dict(zip(table.columns, row, strict=True))
    if deleted:  # all that a tombstone knows
        values = {name: values[name] for name in table.key}
    return {**values, "_deleted": deleted}


@pytest.mark.parametrize(
    ("left", "right", "on", "how"),
    [
        ("employees", "departments", {"department": "id"}, "inner"),
        ("employees", "badges", {"department": "team"}, "full"),
        ("employees", "offices", ["department"], "left"),
    ],
)
def test_the_result_follows_random_changes_of_both_sides(
    spark: SparkSession, tmp_path: Path, left: str, right: str, on: Any, how: How
) -> None:
    rng = random.Random(f"{left} {right}")
    one, other = side(left), side(right)
    shape = Shape.of(one, other, on, how)
    tables = [ScriptedTable(tmp_path, each.name, COLUMNS[each.name], each.key) for each in (one, other)]
    lefts: Rows = {}
    rights: Rows = {}
    held: Rows = {}
    wanted = []
    epochs = 0
    for _ in range(2):  # the second time from the checkpoint, without what the workers had kept
        for _ in range(3):
            ours = [random_change(rng, one) for _ in range(6)]
            theirs = [random_change(rng, other) for _ in range(3)]
            tables[0].write([written(one, each) for each in ours])
            tables[1].write([written(other, each) for each in theirs])
            apply(lefts, one, ours)
            apply(rights, other, theirs)
            wanted.append(joined(shape, lefts, rights))
        frame = join_tables(tables[0].read(spark), tables[1].read(spark), on, how)
        assert frame.columns == [*shape.columns, "_deleted"]
        frame = frame.select(*[_comparable(frame, name) for name in frame.columns])
        for epoch, rows in drain(frame, tmp_path / "checkpoint").items():
            for row in rows:
                deleted = row.pop("_deleted")
                values = tuple(row.values())
                key = shape.key_of(values)
                if deleted:
                    del held[key]
                else:
                    held[key] = values
            assert held == wanted[epoch]
            epochs += 1
    assert epochs == len(wanted)
    assert any(wanted)


def _comparable(frame: Any, name: str) -> Any:
    """Return a column as the test's rows have it: JSON knows neither times nor decimals."""
    kind = frame.schema[name].dataType.simpleString()
    if kind in ("timestamp", "decimal(12,2)"):
        return F.col(name).cast("string").alias(name)
    return F.col(name)


def test_a_result_has_the_types_of_the_tables(spark: SparkSession, tmp_path: Path) -> None:
    employees = ScriptedTable(tmp_path, "employees", COLUMNS["employees"], ("employee",)).read(spark)
    departments = ScriptedTable(tmp_path, "departments", COLUMNS["departments"], ("id",)).read(spark)
    frame = join_tables(employees, departments, {"department": "id"})
    expected = (
        "employee long, name string, department int, title string, budget decimal(12,2), since timestamp"
    )
    wanted = spark.createDataFrame([], f"{expected}, _deleted boolean").schema
    assert [(each.name, each.dataType) for each in frame.schema.fields] == [
        (each.name, each.dataType) for each in wanted.fields
    ]


PEOPLE = 100_000


def test_a_view_follows_when_a_department_of_100_000_is_renamed(spark: SparkSession, tmp_path: Path) -> None:
    employees = ScriptedTable(tmp_path, "employees", COLUMNS["employees"], ("employee",))
    departments = ScriptedTable(tmp_path, "departments", "id int, title string", ("id",))
    employees.write({"employee": n, "name": f"employee {n}", "department": 1} for n in range(PEOPLE))
    departments.write([{"id": 1, "title": "Sales"}, {"id": 2, "title": "Support"}])

    def run() -> dict[str, Any]:
        query = start_view(
            join_tables(employees.read(spark), departments.read(spark), {"department": "id"}),
            store_url=f"sqlite:///{tmp_path}/views.db",
            view="staff",
            key=("employee",),
            mode="changes",
            query="company.staff",
            checkpoint=str(tmp_path / "checkpoint"),
        )
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        with open_store(f"sqlite:///{tmp_path}/views.db") as store:
            return {row.key: tuple(json.loads(row.row).values()) for row in store.rows("staff", limit=PEOPLE)}

    expected: dict[str, Any] = {str(n): (n, f"employee {n}", 1, "Sales") for n in range(PEOPLE)}
    assert run() == expected

    departments.write([{"id": 1, "title": "Marketing"}])
    employees.write([{"employee": 5, "name": "Ann", "department": 2}, {"employee": 6, "_deleted": True}])
    departments.write([])
    employees.write([{"employee": 7, "name": "Bob", "department": 1}])
    expected = {key: (*row[:3], "Marketing") for key, row in expected.items() if key != "6"}
    expected |= {"5": (5, "Ann", 2, "Support"), "7": (7, "Bob", 1, "Marketing")}
    assert run() == expected


def test_rows_of_a_full_join_are_in_a_view_by_the_keys_of_both(spark: SparkSession, tmp_path: Path) -> None:
    employees = ScriptedTable(tmp_path, "employees", COLUMNS["employees"], ("employee",))
    badges = ScriptedTable(tmp_path, "badges", "badge string, team int", ("badge",))
    employees.write([{"employee": 1, "department": 1}, {"employee": 2, "department": 2}])
    badges.write([{"badge": "b1", "team": 1}, {"badge": "b3", "team": 3}])
    query = start_view(
        join_tables(employees.read(spark), badges.read(spark), {"department": "team"}, "full"),
        store_url=f"sqlite:///{tmp_path}/views.db",
        view="staff",
        key=("employee", "badge"),
        mode="changes",
        query="company.staff",
        checkpoint=str(tmp_path / "checkpoint"),
    )
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    with open_store(f"sqlite:///{tmp_path}/views.db") as store:
        assert sorted(row.key for row in store.rows("staff")) == ["%0,b3", "1,b1", "2,%0"]


def test_a_table_without_some_rows_and_with_other_names(spark: SparkSession, tmp_path: Path) -> None:
    employees = ScriptedTable(tmp_path, "employees", COLUMNS["employees"], ("employee",))
    departments = ScriptedTable(tmp_path, "departments", "id int, name string", ("id",))
    employees.write([{"employee": 1, "name": "Ann", "department": 1}])
    departments.write([{"id": 1, "name": "Sales"}])
    employees.write([])
    departments.write([{"id": 1, "name": None}])
    named = departments.read(spark).renamed({"id": "department", "name": "title"}).where("title <> ''")
    assert (named.key, named.columns) == (("department",), ["department", "title"])
    epochs = drain(join_tables(employees.read(spark), named, "department", "left"), tmp_path / "checkpoint")
    assert [[(row["title"], row["_deleted"]) for row in rows] for _, rows in sorted(epochs.items())] == [
        [("Sales", False)],
        [(None, False)],
    ]


def test_what_cannot_be_joined_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    def table(name: str, columns: str, key: str) -> Any:
        return ScriptedTable(tmp_path, name, columns, (key,)).read(spark)

    employees = table("employees", COLUMNS["employees"], "employee")
    departments = table("departments", "id string, name string", "id")
    with pytest.raises(TableError, match="department of employees is int and id of departments is string; "):
        join_tables(employees, departments.renamed({"name": "title"}), {"department": "id"})
    with pytest.raises(TableError, match=r'have name; rename .* as in departments\.renamed\({"name": "…"}\)'):
        join_tables(employees, departments, {"department": "id"})
    with pytest.raises(
        TableError, match=r"the right side of join_tables is a DataFrame, and has to be a table; declare"
    ):
        join_tables(employees, departments.changes, {"department": "id"})
    with pytest.raises(TableError, match="the left side of join_tables is a str"):
        join_tables("employees", departments, {"department": "id"})  # type: ignore[arg-type]
    with pytest.raises(TableError, match=r"employees has no column departmen \(did you mean department\?\)"):
        join_tables(employees, departments, {"departmen": "id"})


def test_a_result_is_joined_with_a_third_table(spark: SparkSession, tmp_path: Path) -> None:
    employees = ScriptedTable(tmp_path, "employees", COLUMNS["employees"], ("employee",))
    departments = ScriptedTable(tmp_path, "departments", "id int, title string, floor int", ("id",))
    floors = ScriptedTable(tmp_path, "floors", "floor int, color string", ("floor",))
    batches: list[tuple[list[Any], list[Any], list[Any]]] = [
        (
            [{"employee": n, "name": f"e{n}", "department": n % 2} for n in (1, 2, 3)],
            [{"id": 0, "title": "Sales", "floor": 7}, {"id": 1, "title": "Support", "floor": 8}],
            [{"floor": 7, "color": "red"}, {"floor": 8, "color": "blue"}],
        ),
        ([{"employee": 3, "name": "e3", "department": 0}], [{"id": 1, "title": "Help", "floor": 7}], []),
        ([{"employee": 1, "_deleted": True}], [], [{"floor": 7, "color": "green"}]),
        ([], [{"id": 0, "_deleted": True}], []),
    ]
    for batch in batches:
        for table, changes in zip((employees, departments, floors), batch, strict=True):
            table.write(changes)
    staff = join_tables(employees.read(spark), departments.read(spark), {"department": "id"})
    frame = join_tables(as_table(staff, key="employee"), floors.read(spark), "floor")
    held: dict[int, tuple[Any, ...]] = {}
    after = []
    for _, rows in sorted(drain(frame, tmp_path / "checkpoint").items()):
        for row in rows:
            if row["_deleted"]:
                del held[row["employee"]]
            else:
                held[row["employee"]] = (row["title"], row["color"])
        after.append(dict(held))
    assert after == [
        {1: ("Support", "blue"), 2: ("Sales", "red"), 3: ("Support", "blue")},
        {1: ("Help", "red"), 2: ("Sales", "red"), 3: ("Sales", "red")},
        {2: ("Sales", "green"), 3: ("Sales", "green")},
        {},
    ]
    with pytest.raises(TableError, match="the result of join_tables has no column id"):
        as_table(staff, key="id")
    with pytest.raises(TableError, match="as_table takes the DataFrame that join_tables returned"):
        as_table(staff.drop("_deleted"), key="employee")
    full = join_tables(employees.read(spark), departments.read(spark), {"department": "id"}, "full")
    with pytest.raises(
        TableError, match="employee can be null in this join, so that it is no key of a table"
    ):
        as_table(full, key=["employee", "department"])
