"""One change for each key of the result and batch."""

from __future__ import annotations

import pyarrow as pa

from headwater.pipeline.table_joins.net import netted

Row = tuple[int | None, str | None, str, bool]


def net(*batches: list[Row]) -> list[Row]:
    names = ["employee", "badge", "name", "_deleted"]
    types = [pa.int64(), pa.string(), pa.string(), pa.bool_()]
    schema = pa.schema(list(zip(names, types, strict=True)))
    given = [
        pa.RecordBatch.from_pylist([dict(zip(names, row, strict=True)) for row in b], schema) for b in batches
    ]
    return [
        tuple(row.values())
        for each in netted(given, ["employee", "badge"], "_deleted")
        for row in each.to_pylist()
    ]


def test_an_upsert_stands_for_a_delete_of_its_key_in_whatever_order_they_come() -> None:
    upsert: Row = (1, None, "new", False)
    delete: Row = (1, None, "", True)
    assert net([delete], [upsert]) == [upsert]
    assert net([upsert, delete]) == [upsert]
    assert net([upsert], [], [delete]) == [upsert]


def test_the_other_changes_go_through() -> None:
    rows: list[Row] = [(1, "a", "x", False), (1, "b", "", True), (2, None, "", True), (None, "a", "y", False)]
    assert sorted(net(rows[:2], rows[2:]), key=repr) == sorted(rows, key=repr)
    assert net([rows[1]]) == [rows[1]]
    assert net() == []
