"""Parts of a warehouse: how many there are, whose rows they hold, and what a merge leaves in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.app.schema import parse
from headwater.derived.parts import (
    KEY,
    arrow_schema,
    bucket_of,
    buckets_for,
    merge,
    part_name,
    read_bucket,
    sources,
    write_part,
)

SCHEMA = arrow_schema(parse("n int"))
POWERS = st.sampled_from([1, 2, 4, 8, 16])


def table(rows: dict[str, int]) -> Any:
    return pa.table({KEY: [*rows], "n": pa.array(rows.values(), pa.int32())}, schema=SCHEMA)


@given(st.integers(0, 10**9), POWERS, st.integers(1, 1000))
def test_buckets_are_neither_full_nor_nearly_empty(rows: int, had: int, bucket_rows: int) -> None:
    buckets = buckets_for(rows, had, bucket_rows)
    assert rows <= buckets * bucket_rows
    assert buckets == 1 or rows * 8 >= buckets * bucket_rows
    assert buckets.bit_count() == 1
    assert buckets_for(rows, buckets, bucket_rows) == buckets, "what was decided stays"


@given(st.text(), POWERS, POWERS)
def test_a_key_is_found_in_the_sources_of_its_bucket(key: str, had: int, buckets: int) -> None:
    assert bucket_of(key, had) in sources(bucket_of(key, buckets), buckets, had)


@settings(max_examples=30)
@given(
    st.dictionaries(st.text(max_size=3), st.integers(0, 99)),
    st.dictionaries(st.text(max_size=3), st.integers(0, 99)),
    st.lists(st.text(max_size=3)),
)
def test_a_merge_is_what_a_dictionary_does(
    rows: dict[str, int], changed: dict[str, int], gone: list[str]
) -> None:
    gone = [key for key in gone if key not in changed]
    merged = merge(table(rows), table(changed), pa.array(gone, pa.string()))
    expected = {key: n for key, n in {**rows, **changed}.items() if key not in gone}
    assert dict(zip(merged.column(KEY).to_pylist(), merged.column("n").to_pylist(), strict=True)) == expected
    assert merged.num_rows == len(expected)
    assert merged.column(KEY).to_pylist() == sorted(expected, key=str.encode)


def test_split_and_joined_buckets_hold_the_same_rows(tmp_path: Path) -> None:
    rows = {f"key {n}": n for n in range(200)}
    had = 1
    held: dict[int, Any] = {0: table(rows)}
    for turn, buckets in enumerate((4, 16, 2, 2, 8, 1)):
        directory = tmp_path / str(turn)
        directory.mkdir()
        for bucket, part in held.items():
            write_part(part, directory / part_name(bucket))
        held = {bucket: read_bucket(directory, bucket, buckets, had, SCHEMA) for bucket in range(buckets)}
        had = buckets
        for bucket, part in held.items():
            assert {bucket_of(key, buckets) for key in part.column(KEY).to_pylist()} <= {bucket}
        assert sum(part.num_rows for part in held.values()) == 200
    assert sorted(held[0].column("n").to_pylist()) == [*range(200)]
