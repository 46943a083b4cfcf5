"""A table's records as changes: plain values and Debezium's envelope, deletes by their keys, and what is malformed."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from headwater.pipeline.source.change_keys import KeyReader
from headwater.pipeline.source.decoded import Malformed
from headwater.pipeline.source.members import Names, find_members
from headwater.pipeline.source.spec import CHANGE_COLUMNS
from headwater.pipeline.source.table_values import TableDecoder
from headwater.views.keys import encode

from .batches import records_of

TIME = pa.timestamp("us", tz="UTC")
ROW = [("id", pa.int64()), ("name", pa.string()), ("since", TIME)]
CHANGE = [
    ("_deleted", pa.bool_()),
    ("_changed_at", TIME),
    ("_version", pa.int64()),
]
SCHEMA = pa.schema(ROW + CHANGE)
COMMIT_US = 1_700_000_000_123_456


def decoded(
    envelope: str, records: list[tuple[Any, Any]], valid_from: str | None = None
) -> tuple[list[tuple[Any, ...]], list[tuple[int, str]]]:
    """Return (id, name, deleted, time in µs, version) of each change, and the dead records."""
    keys, values = ([_bytes(each[place]) for each in records] for place in (0, 1))
    found = TableDecoder(SCHEMA, envelope, ["id"], valid_from).decode(records_of(values, keys))
    columns = dict(zip(SCHEMA.names, found.columns, strict=True))
    times = columns["_changed_at"].cast(pa.int64()).to_pylist()
    rows = zip(
        *(columns[name].to_pylist() for name in ("id", "name", "_deleted")),
        times,
        *(columns[name].to_pylist() for name in ("_version",)),
        strict=True,
    )
    return list(rows), found.dead


def _bytes(value: Any) -> bytes | None:
    return value if isinstance(value, bytes) or value is None else json.dumps(value).encode()


def test_the_columns_of_a_change_are_those_that_the_source_declares() -> None:
    assert [name for name, _ in CHANGE] == list(CHANGE_COLUMNS)


def test_plain_values_are_rows_and_nulls_are_deletes() -> None:
    rows, dead = decoded(
        "flat",
        [
            (b"1", {"id": 1, "name": "ann", "more": [1]}),
            (b"2", {"id": 2, "name": 'b"o'}),
            (b"1", None),
            ({"id": 3}, None),
            ({"schema": {}, "payload": {"id": 4}}, None),
        ],
    )
    assert rows == [
        (1, "ann", False, 1_000_000, 0),
        (2, 'b"o', False, 1_001_000, 1),
        (1, None, True, 1_002_000, 2),
        (3, None, True, 1_003_000, 3),
        (4, None, True, 1_004_000, 4),
    ]
    assert not dead


def test_values_and_deletes_that_do_not_fit_are_dead() -> None:
    rows, dead = decoded(
        "flat",
        [
            (b"1", b"[]"),
            (None, None),
            (b"one", None),
            ({"name": "x"}, None),
            (b"1", {"id": "x"}),
            (b"7", {"id": 7}),
        ],
    )
    assert [row[0] for row in rows] == [7]
    assert [row for row, _ in dead] == [0, 1, 2, 3, 4]
    reasons = [reason for _, reason in dead]
    assert reasons[1] == "a delete without a key: nobody can tell of which row"
    assert reasons[2] == 'id: "one" is not a whole number'
    assert reasons[4] == 'id: "x" is not a whole number'


def test_only_rows_take_the_time_of_their_column() -> None:
    rows, _ = decoded(
        "flat",
        [(b"1", {"id": 1, "since": "1970-01-01T00:00:07Z"}), (b"1", {"id": 1}), (b"1", None)],
        valid_from="since",
    )
    assert [row[3] for row in rows] == [7_000_000, 1_001_000, 1_002_000]


def envelope(op: str, row: dict[str, Any] | None, *, before: Any = None, **source: Any) -> dict[str, Any]:
    return {"before": before, "after": row, "source": {"db": "shop", **source}, "op": op, "ts_ms": 99}


@pytest.mark.parametrize("wrapped", [False, True])
def test_debezium_envelopes_are_changes(wrapped: bool) -> None:
    ann, bob = {"id": 1, "name": "ann"}, {"id": 1, "name": 'bob "the" {one}, é'}
    records: list[tuple[Any, Any]] = [
        ({"id": 1}, envelope("r", ann, ts_ms=5)),
        ({"id": 1}, envelope("c", ann, ts_ms=6, sequence='["1","2"]')),
        ({"id": 1}, envelope("u", bob, before=ann, ts_ms=6, ts_us=COMMIT_US, ts_ns=COMMIT_US * 1000)),
        ({"id": 1}, envelope("d", None, before=bob, ts_ms=7)),
        ({"id": 1}, None),
        (None, envelope("d", None, before=bob)),
        (None, {"op": "m", "message": {}}),
    ]
    if wrapped:
        records = [
            (
                key and {"schema": {"type": "struct"}, "payload": key},
                value and {"schema": {"a": [1]}, "payload": value},
            )
            for key, value in records
        ]
    rows, dead = decoded("debezium", records)
    assert not dead
    assert rows == [
        (1, "ann", False, None, 0),
        (1, "ann", False, 6_000, 1),
        (1, bob["name"], False, COMMIT_US, 2),
        (1, None, True, 7_000, 3),
        (1, None, True, None, 4),
        (1, None, True, 99_000, 5),
    ]


def test_a_wrapped_null_deletes_like_a_null() -> None:
    rows, dead = decoded("debezium", [({"id": 1}, {"schema": None, "payload": None})])
    assert (rows, dead) == ([(1, None, True, None, 0)], [])


def test_a_time_is_the_records_where_the_envelope_has_none() -> None:
    rows, _ = decoded("debezium", [({"id": 1}, {"op": "c", "after": {"id": 1}, "ts_ms": None})])
    assert rows[0][3] == 1_000_000


MALFORMED = {
    b'{"op": "c"': "not JSON",
    b"[1]": "not in Debezium's envelope: there is no op",
    b'{"id": 1}': "not in Debezium's envelope: there is no op",
    b'{"op": "x"}': 'the operation "x" is unknown; there are c, u, r, d and t',
    b'{"op": "create"}': 'the operation "create" is unknown; there are c, u, r, d and t',
    b'{"op": "c", "after": null}': "the operation c without the row after it",
    b'{"op": "t", "before": null}': "the table was truncated",
    b'{"op": "c", "after": {"id": "x"}}': 'after: id: "x" is not a whole number',
    b'{"op": "c", "after": {"id": }}': "after: not JSON",
    b'{"op": "d", "before": null}': "a delete without a key",
}


@pytest.mark.parametrize("value", MALFORMED)
def test_what_is_no_change_is_dead_with_the_reason(value: bytes) -> None:
    good = ({"id": 7}, envelope("c", {"id": 7}))
    rows, [(row, reason)] = decoded("debezium", [good, (None, value), good])
    assert row == 1
    assert reason.startswith(MALFORMED[value])
    assert [each[0] for each in rows] == [7, 7]


KEYS = pa.schema([("a", pa.string()), ("b", pa.int32()), ("c", pa.bool_())])


@given(st.text(), st.integers(-(2**31), 2**31 - 1), st.booleans())
@settings(max_examples=examples(50))
def test_the_keys_that_sinks_write_are_read(text: str, number: int, flag: bool) -> None:
    row = [text, number, flag]
    assert KeyReader(KEYS, ["a", "b", "c"]).read(encode(row).encode()) == row
    assert KeyReader(KEYS, ["c", "a"]).read(encode([flag, text]).encode()) == [flag, text]
    assert KeyReader(KEYS, ["b"]).read(encode([number]).encode()) == [number]
    assert KeyReader(KEYS, ["a", "b"]).read(json.dumps({"b": number, "a": text}).encode()) == [text, number]
    assert KeyReader(KEYS, ["a"]).read(text.encode()) == [text]


def test_no_digit_of_a_key_is_lost() -> None:
    exact = "1234567890123456789012345678901234.56"
    keys = KeyReader(pa.schema([("k", pa.decimal128(38, 2))]), ["k"])
    for key in (exact, f'{{"k":{exact}}}', f'{{"k":"{exact}"}}'):
        assert keys.read(key.encode()) == [Decimal(exact)]


def test_a_key_of_bytes_is_read_as_it_is() -> None:
    assert KeyReader(pa.schema([("k", pa.binary())]), ["k"]).read(b"\xff\x00") == [b"\xff\x00"]
    with pytest.raises(Malformed, match="neither JSON nor text"):
        KeyReader(KEYS, ["a"]).read(b"\xff")
    with pytest.raises(Malformed, match="a delete whose key has no b"):
        KeyReader(KEYS, ["a", "b"]).read(b"x,%0")
    with pytest.raises(Malformed, match="not one of a and b"):
        KeyReader(KEYS, ["a", "b"]).read(b"x")


DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.lists(st.dictionaries(st.sampled_from(["op", "after", "x", '"']), DOCUMENTS), max_size=4),
    st.booleans(),
)
@settings(max_examples=examples(100))
def test_members_are_found_where_they_are(documents: list[dict[str, Any]], spaced: bool) -> None:
    texts = [
        json.dumps(each, ensure_ascii=False, indent=1 if spaced else None).encode() for each in documents
    ]
    records = records_of([b" ", *texts])
    names = Names("after", "op")
    at, size, objects = find_members(
        records.buffer, records.column(2), records.column(3), names.bytes, names.ends
    )
    assert objects.tolist() == [False] + [True] * len(texts)
    for number, document in enumerate(documents, 1):
        for place, name in enumerate(("after", "op")):
            if name in document:
                start = int(at[place, number])
                text = records.buffer[start : start + int(size[place, number])].tobytes()
                assert json.loads(text) == document[name]
            else:
                assert size[place, number] == -1


@given(st.binary(max_size=40))
@settings(max_examples=examples(100))
def test_no_bytes_break_the_scanner(noise: bytes) -> None:
    rows, dead = decoded(
        "debezium", [({"id": 1}, b"{" + noise), ({"id": 1}, b'{"op":"c","after":{' + noise + b"}}")]
    )
    assert len(rows) + len(dead) == 2
