"""What a task of a warehouse does with its changes, without Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.app import App
from headwater.app.schema import parse
from headwater.derived.errors import DerivedError
from headwater.derived.parts import KEY, arrow_schema, bucket_of, part_name, write_part
from headwater.pipeline.sinks import warehouse_parts
from headwater.pipeline.sinks.warehouse_parts import (
    BUCKET,
    DELETED,
    OFFSET,
    PARTITION,
    TIME,
    PartMerger,
    last_changes,
)
from headwater.pipeline.sinks.warehouse_rows import rows_of
from headwater.pipeline.source.decoded import Decoded
from headwater.pipeline.source.key_check import KeyChecked
from headwater.pipeline.source.opened import Records

COLUMNS = parse("n int")


def changes(rows: list[dict[str, Any]], buckets: int = 1) -> pa.RecordBatch:
    """Return changes as Spark hands them over: key, n, partition, offset, time, and whether it is a delete."""
    placed = [
        {**row, BUCKET: row.get(BUCKET, bucket_of(row[KEY] or "", buckets) if KEY in row else 0)}
        for row in rows
    ]
    placed.sort(key=lambda row: row[BUCKET])
    schema = pa.schema(
        [
            ("n", pa.int32()),
            (DELETED, pa.bool_()),
            (OFFSET, pa.int64()),
            (PARTITION, pa.int32()),
            (TIME, pa.timestamp("us", "UTC")),
            (KEY, pa.string()),
            (BUCKET, pa.int32()),
        ]
    )
    return pa.RecordBatch.from_pylist(placed, schema=schema)


def change(
    key: str | None, n: int | None, offset: int, partition: int = 0, second: int = 0
) -> dict[str, Any]:
    at = datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)
    return {KEY: key, "n": n, DELETED: n is None, OFFSET: offset, PARTITION: partition, TIME: at}


def test_the_last_change_is_by_offset_and_between_partitions_by_time() -> None:
    batch = changes(
        [
            change("a", 1, 5, second=50),
            change("a", 2, 6, second=10),  # later all the same: clocks differ
            change("b", 1, 9, partition=0, second=1),
            change("b", 2, 0, partition=1, second=2),
            change("c", None, 3),
        ]
    )
    latest = last_changes(pa.Table.from_batches([batch]))
    found = dict(zip(latest.column(KEY).to_pylist(), latest.column("n").to_pylist(), strict=True))
    assert found == {"a": 2, "b": 2, "c": None}


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 30), st.one_of(st.none(), st.integers(0, 99))), max_size=40),
        max_size=4,
    ),
    st.sampled_from([1, 2, 8]),
    st.integers(1, 10),
)
def test_merged_batches_are_what_a_dictionary_does(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[list[tuple[int, int | None]]],
    buckets: int,
    gather: int,
) -> None:
    directory = tmp_path_factory.mktemp("parts")
    model: dict[str, int] = {"old": 7}
    _write(directory / "v0", {"old": 7})
    had = 1
    offset = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warehouse_parts, "_GATHER_ROWS", gather)
        for turn, batch in enumerate(batches, 1):
            rows = []
            for number, n in batch:
                offset += 1
                key = f"k{number}"
                rows.append(change(key, n, offset))
                if n is None:
                    model.pop(key, None)
                else:
                    model[key] = n
            made = directory / f"v{turn}"
            made.mkdir()
            every: list[dict[str, Any]] = [{BUCKET: bucket} for bucket in range(buckets)]
            merger = PartMerger(str(directory / f"v{turn - 1}"), had, str(made), buckets, COLUMNS, ())
            given_batch = changes([*rows, *every], buckets)
            some = [given_batch.slice(at, 7) for at in range(0, given_batch.num_rows, 7)]
            told = [row for result in merger(iter(some)) for row in result.to_pylist()]
            had = buckets
            assert sum(row["rows"] for row in told) == len(model)
            held = [row for file in made.glob("*.parquet") for row in pq.read_table(file).to_pylist()]
            assert {row[KEY]: row["n"] for row in held} == model
            assert len(held) == len(model)


def test_columns_that_were_read_as_text_get_their_types(tmp_path: Path) -> None:
    columns = parse("at timestamp, n double")
    write_part(arrow_schema(columns).empty_table(), tmp_path / part_name(0))
    made = tmp_path / "made"
    made.mkdir()
    rows = [
        {**change("a", 1, 1), "at": "2026-01-01T01:00:00+01:00", "n": "1.5", BUCKET: 0},
        {**change("b", None, 2), "at": "2026-01-02T00:00:00Z", "n": "2", BUCKET: 0},
    ]
    merger = PartMerger(str(tmp_path), 1, str(made), 1, columns, ("at", "n"))
    [told] = [
        row for result in merger(iter([pa.RecordBatch.from_pylist(rows)])) for row in result.to_pylist()
    ]
    assert told == {"bucket": 0, "rows": 1}
    [row] = pq.read_table(made / part_name(0)).to_pylist()
    assert (row["at"], row["n"]) == (datetime(2026, 1, 1, tzinfo=UTC), 1.5)


def test_a_key_is_read_as_text_where_that_depends_on_how_it_was_written() -> None:
    app = App("shop")
    app.table("plain", "id bigint, day date, n int", key=["id", "day"], envelope="debezium", max_rows=7)
    app.table("timed", "at timestamp, n decimal(5,2), raw binary, x int", key=["at", "n", "raw"])
    app.table("nested", "id array<int>, n int", key="id")

    @app.stream(key="raw", mode="changes")
    def changed(plain: Any) -> Any:
        return plain

    found = {
        of: rows_of(app, app.warehouse(f"w_{of}", of=of, schema=schema), broker="kafka://h:1", query="q")
        for of, schema in (("plain", None), ("timed", None), ("changed", "raw binary, n int"))
    }
    assert {of: read.texts for of, read in found.items()} == {
        "plain": (),
        "timed": ("at", "n", "raw"),
        "changed": (),  # its deletes have nothing but the bytes
    }
    assert found["timed"].source.schema == "at string, n string, raw string, x int"
    assert found["timed"].source.key_types == "at timestamp, n decimal(5,2), raw binary"
    assert (found["plain"].source.envelope, found["plain"].source.max_rows) == ("debezium", 7)
    assert found["changed"].source.envelope == "flat"
    with pytest.raises(DerivedError, match=r'id, of the key of nested.*engine="process"'):
        rows_of(app, app.warehouse("w", of="nested"), broker="kafka://h:1", query="q")


def test_a_row_whose_key_is_not_whole_is_malformed() -> None:
    schema = pa.schema([("at", pa.string()), ("id", pa.int32())])
    columns = [pa.array(["2026-01-01T00:00:00Z", None, "never", "2026-01-01"]), pa.array([1, 2, 3, None])]

    class Same:
        def decode(self, records: Records) -> Decoded:
            return Decoded(columns, np.array([1, 3, 4, 6]), [(5, "not JSON")])

    checked = KeyChecked(Same(), schema, parse("at timestamp, id int"))
    found = checked.decode(Records(np.zeros(0, np.uint8), np.zeros((0, 12), np.int64)))
    assert found.columns[1].to_pylist() == [1]
    assert found.rows is not None
    assert found.rows.tolist() == [1]
    assert found.dead == [
        (3, "the row has no at, which is its key"),
        (4, 'at: "never" is not a time in ISO 8601'),
        (5, "not JSON"),
        (6, "the row has no id, which is its key"),
    ]


def _write(directory: Path, rows: dict[str, int]) -> None:
    directory.mkdir()
    schema = arrow_schema(COLUMNS)
    write_part(
        pa.table({KEY: [*rows], "n": pa.array(rows.values(), pa.int32())}, schema=schema),
        directory / part_name(0),
    )
