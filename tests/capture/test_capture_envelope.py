"""Changes become the records that Debezium would write."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.capture.change import Change, Column, Op, Row, TableSchema
from headwater.capture.envelope import UNAVAILABLE, Encoder, Origin
from headwater.capture.source import CaptureError

ORIGIN = Origin("postgresql", "shop", "orders_db", "0.1")
USERS = TableSchema(
    "public",
    "users",
    (
        Column("id", "bigint", "int8", optional=False),
        Column("name", "string", "text"),
        Column("photo", "binary", "bytea"),
    ),
    ("id",),
)
NOW = 1_700_000_000_500


def change(
    op: Op, before: Row | None, after: Row | None, *, table: TableSchema = USERS, tx: str | None = "77"
) -> Change:
    return Change(op, table, before, after, 1_700_000_000_123_456, tx, {"txId": 77, "lsn": 22_334_455})


def document(op: str, before: Any, after: Any, **more: Any) -> dict[str, Any]:
    source = {
        "version": "0.1",
        "connector": "postgresql",
        "name": "shop",
        "ts_ms": 1_700_000_000_123,
        "ts_us": 1_700_000_000_123_456,
        "snapshot": "true" if op == "r" else "false",
        "db": "orders_db",
        "schema": "public",
        "table": "users",
        "txId": 77,
        "lsn": 22_334_455,
    }
    said = {
        "before": before,
        "after": after,
        "source": source,
        "transaction": {"id": "77"},
        "op": op,
        "ts_ms": NOW,
    }
    return said | more


def test_a_row_that_is_created() -> None:
    [(key, value)] = Encoder(ORIGIN).records(change("c", None, (b"1", b'"Ann"', b'"AAE="')), NOW)
    assert key == b'{"id":1}'
    assert (
        value
        == json.dumps(
            document("c", None, {"id": 1, "name": "Ann", "photo": "AAE="}), separators=(",", ":")
        ).encode()
    )


def test_a_row_of_a_snapshot_is_in_no_transaction() -> None:
    [(_, value)] = Encoder(ORIGIN).records(change("r", None, (b"1", b"null", b"null"), tx=None), NOW)
    assert json.loads(value or b"") == document(
        "r", None, {"id": 1, "name": None, "photo": None}, transaction=None
    )


def test_an_update_has_the_row_before_as_far_as_it_is_known() -> None:
    encoder = Encoder(ORIGIN)
    [(_, value)] = encoder.records(change("u", (b"1", b'"Ann"', None), (b"1", b'"Bea"', b"null")), NOW)
    wanted = document("u", {"id": 1, "name": "Ann"}, {"id": 1, "name": "Bea", "photo": None})
    assert json.loads(value or b"") == wanted
    [(_, value)] = encoder.records(change("u", None, (b"1", b'"Bea"', b"null")), NOW)
    assert json.loads(value or b"") == wanted | {"before": None}


def test_a_delete_is_followed_by_a_tombstone() -> None:
    [(key, value), tombstone] = Encoder(ORIGIN).records(change("d", (b"1", None, None), None), NOW)
    assert key == b'{"id":1}'
    assert json.loads(value or b"") == document("d", {"id": 1}, None)
    assert tombstone == (b'{"id":1}', None)


def test_a_changed_key_is_a_delete_and_a_new_row() -> None:
    update = change("u", (b"1", b'"Ann"', b"null"), (b"2", b'"Ann"', b"null"))
    records = Encoder(ORIGIN).records(update, NOW)
    assert [key for key, _ in records] == [b'{"id":1}', b'{"id":1}', b'{"id":2}']
    row = {"name": "Ann", "photo": None}
    assert json.loads(records[0][1] or b"") == document("d", {"id": 1, **row}, None)
    assert records[1][1] is None
    assert json.loads(records[2][1] or b"") == document("c", None, {"id": 2, **row})


def test_an_unchanged_large_value_is_taken_from_before_or_marked() -> None:
    encoder = Encoder(ORIGIN)
    [(_, value)] = encoder.records(change("u", (b"1", b'"Ann"', b'"AAE="'), (b"1", b'"Bea"', None)), NOW)
    assert json.loads(value or b"")["after"] == {"id": 1, "name": "Bea", "photo": "AAE="}
    [(_, value)] = encoder.records(change("u", None, (b"1", None, None)), NOW)
    marked = json.loads(value or b"")["after"]
    assert marked["name"] == UNAVAILABLE
    assert marked["photo"] == "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="  # Debezium's, as bytes


def test_flat_records_are_the_rows() -> None:
    encoder = Encoder(ORIGIN, flat={"users"})
    assert encoder.records(change("c", None, (b"1", b'"Ann"', b"null")), NOW) == [
        (b'{"id":1}', b'{"id":1,"name":"Ann","photo":null}')
    ]
    assert encoder.records(change("d", (b"1", None, None), None), NOW) == [(b'{"id":1}', None)]
    moved = change("u", (b"1", None, None), (b"2", b"null", b"null"))
    assert encoder.records(moved, NOW) == [
        (b'{"id":1}', None),
        (b'{"id":2}', b'{"id":2,"name":null,"photo":null}'),
    ]


def test_mysql_names_its_databases_once() -> None:
    encoder = Encoder(Origin("mysql", "shop", "shop", "0.1"))
    [(_, value)] = encoder.records(change("c", None, (b"1", b"null", b"null")), NOW)
    source = json.loads(value or b"")["source"]
    assert source["db"] == "public"
    assert "schema" not in source


@given(st.lists(st.text(), min_size=1, max_size=4, unique=True), st.data())
def test_any_names_and_keys(names: list[str], data: st.DataObject) -> None:
    """Names with quotes, percent signs and what else there is come out as they went in."""
    key = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    columns = tuple(Column(name, "string", "text") for name in names)
    table = TableSchema('sch"ema %s', "ta%ble", columns, tuple(key))
    values = data.draw(st.lists(st.text(), min_size=len(names), max_size=len(names)))
    row = tuple(json.dumps(value).encode() for value in values)
    [(found, value)] = Encoder(ORIGIN).records(change("c", None, row, table=table), NOW)
    wanted = dict(zip(names, values, strict=True))
    assert json.loads(found) == {name: wanted[name] for name in key}
    said = json.loads(value or b"")
    assert said["after"] == wanted
    assert (said["source"]["schema"], said["source"]["table"]) == ('sch"ema %s', "ta%ble")


def test_what_cannot_be_a_record_is_named() -> None:
    keyless = TableSchema("public", "log", (Column("line", "string", "text"),), ())
    with pytest.raises(CaptureError, match=r"public\.log has no primary key"):
        Encoder(ORIGIN).records(change("c", None, (b'"x"',), table=keyless), NOW)
    with pytest.raises(CaptureError, match="does not say which row"):
        Encoder(ORIGIN).records(change("d", (None, b'"Ann"', None), None), NOW)
    with pytest.raises(CaptureError, match="says nothing about its row"):
        Encoder(ORIGIN).records(change("d", None, None), NOW)
