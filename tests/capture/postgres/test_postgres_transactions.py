"""Transactions as changes, from any position on, without a server."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.capture.change import Change, Column, TableSchema
from headwater.capture.postgres.catalog import Table
from headwater.capture.postgres.offset import Offset, TableState, Visible, lsn_number, lsn_text
from headwater.capture.postgres.pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    MalformedMessage,
    Message,
    Relation,
    RelationColumn,
    Truncate,
    Update,
    Values,
)
from headwater.capture.postgres.transactions import Transactions
from headwater.capture.postgres.values import as_is, string
from headwater.capture.source import CaptureError

from .messages import piece

USERS = Table(
    oid=1,
    schema=TableSchema(
        "public", "users", (Column("id", "int", "integer"), Column("name", "string", "text")), ("id",)
    ),
    described=(("id", 23, -1, False), ("name", 25, -1, True)),
    converts=(as_is, string),
    is_key=(True, False),
    kind="r",
)
OTHERS = 2
RELATIONS: list[Message] = [
    Relation(
        1, "public", "users", "d", (RelationColumn(True, "id", 23, -1), RelationColumn(False, "name", 25, -1))
    ),
    Relation(2, "public", "others", "d", (RelationColumn(True, "id", 23, -1),)),
]
START = Offset("7", 90, tables={"public.users": TableState(1)})


def resolve(relation: Relation) -> Table | None:
    return USERS if relation.oid == 1 and USERS.looks_like(relation) else None


def told(*transactions: list[Message], first: int = 100) -> list[Message]:
    """Return transactions as the log has them, one every ten places."""
    out = [*RELATIONS]
    for number, changes in enumerate(transactions):
        lsn = first + 10 * number
        out += [
            Begin(lsn, 1_000_000 + number, 50 + number),
            *changes,
            Commit(lsn, lsn + 5, 1_000_000 + number),
        ]
    return out


def follow(offset: Offset, messages: list[Message]) -> Transactions:
    transactions = Transactions(offset, resolve)
    for message in messages:
        transactions.take(piece(message))
    return transactions


def test_changes_carry_their_transaction() -> None:
    transactions = follow(START, told([Insert(1, [b"1", b"ann"]), Delete(1, True, [b"1", None])]))
    assert transactions.changes == [
        Change("c", USERS.schema, None, (b"1", b'"ann"'), 1_000_000, "50:100", {"txId": 50, "lsn": 100}),
        Change("d", USERS.schema, (b"1", None), None, 1_000_000, "50:100", {"txId": 50, "lsn": 100}),
    ]
    assert transactions.batch().position["lsn"] == lsn_text(105)
    assert transactions.changes == []


def test_an_update_says_what_it_knows() -> None:
    transactions = follow(
        START,
        told(
            [
                Update(1, False, None, [b"1", None]),
                Update(1, True, [b"1", None], [b"2", b"b"]),
                Update(1, False, [b"2", b"b"], [b"2", b"c"]),
                Update(1, False, [b"2", b"big"], [b"2", UNCHANGED]),
                Update(1, False, None, [b"2", UNCHANGED]),
            ]
        ),
    )
    assert [(change.op, change.before, change.after) for change in transactions.changes] == [
        ("u", None, (b"1", b"null")),
        ("u", (b"1", None), (b"2", b'"b"')),
        ("u", (b"2", b'"b"'), (b"2", b'"c"')),
        ("u", (b"2", b'"big"'), (b"2", b'"big"')),
        ("u", None, (b"2", None)),
    ]
    assert [(gap.place, gap.values) for gap in transactions.gaps] == [(4, [b"2", UNCHANGED])]


def test_tables_that_are_not_captured_are_left_out() -> None:
    transactions = follow(START, told([Insert(OTHERS, [b"1"]), Truncate((OTHERS, 1))]))
    assert [(change.op, change.table) for change in transactions.changes] == [("t", USERS.schema)]


def test_what_a_later_snapshot_of_the_table_has_shown_is_left_out() -> None:
    # The snapshot was taken while 51 ran, after 50 and 52 had committed.
    seen = Visible("51:53:51", until=130)
    offset = Offset("7", 100, tables={"public.users": TableState(1, seen)})
    inserts: list[list[Message]] = [[Insert(1, [b"%d" % n, b"x"])] for n in range(5)]
    transactions = follow(offset, told(*inserts))
    assert [change.after for change in transactions.changes] == [(b"%d" % n, b'"x"') for n in (1, 3, 4)]
    assert transactions.offset.tables == {"public.users": TableState(1)}


_rows: st.SearchStrategy[Values] = st.tuples(st.integers(0, 5), st.text("ab", max_size=3)).map(
    lambda row: [b"%d" % row[0], row[1].encode()]
)
_changes: st.SearchStrategy[Message] = st.one_of(
    st.builds(Insert, st.just(1), _rows),
    st.builds(lambda row: Delete(1, True, [row[0], None]), _rows),
    st.builds(lambda row: Insert(OTHERS, [row[0]]), _rows),
    st.just(Truncate((1, OTHERS))),
)


@given(st.lists(st.lists(_changes, max_size=6), max_size=5), st.data())
def test_going_on_from_any_batch_repeats_nothing_and_loses_nothing(
    transactions: list[list[Message]], data: st.DataObject
) -> None:
    messages = told(*transactions)
    whole = follow(START, messages).changes
    stop = data.draw(st.integers(len(RELATIONS), len(messages)))
    first = follow(START, messages[:stop])
    batch = first.batch()
    offset = Offset.parse(json.loads(json.dumps(batch.position)))
    # The server repeats the transaction that the position is in, and all that come after it.
    begins = [
        (n, m.commit_lsn)
        for n, m in enumerate(messages)
        if isinstance(m, Begin) and m.commit_lsn >= offset.lsn
    ]
    place, commit_lsn = begins[0] if begins else (len(messages), offset.lsn)
    second = Transactions(offset, resolve)
    # Before it does, it may say that it has read its log up to there.
    second.advance(data.draw(st.sampled_from([0, commit_lsn])))
    for message in RELATIONS + messages[place:]:
        second.take(piece(message))
    assert batch.changes + second.changes == whole
    # A server that repeats more than it was asked for makes no difference.
    assert batch.changes + follow(offset, messages).changes == whole


def test_an_idle_log_moves_the_position() -> None:
    transactions = follow(START, told([]))
    transactions.advance(200)
    assert transactions.batch().position["lsn"] == lsn_text(200)
    transactions.advance(150)
    assert transactions.offset.lsn == 200


def test_the_position_stays_within_a_transaction() -> None:
    transactions = follow(START, told([Insert(1, [b"1", b"a"])])[:-1])
    transactions.advance(200)
    position = transactions.batch().position
    assert (position["lsn"], position["done"]) == (lsn_text(90), 1)


@pytest.mark.parametrize(
    "messages",
    [
        [Insert(1, [b"1", b"a"])],
        [*RELATIONS, Commit(1, 2, 3)],
        [*RELATIONS, Begin(100, 0, 1), Begin(110, 0, 2)],
        [Begin(100, 0, 1), Insert(1, [b"1", b"a"])],
        [*RELATIONS, Begin(100, 0, 1), Insert(1, [b"1"])],
    ],
)
def test_messages_out_of_turn_are_an_error(messages: list[Message]) -> None:
    with pytest.raises(MalformedMessage, match="pgoutput"):
        follow(START, messages)


@given(
    st.builds(
        Offset,
        st.just("7"),
        st.integers(0, 2**64 - 1),
        st.integers(0, 100),
        st.dictionaries(
            st.text(min_size=1),
            st.builds(TableState, st.integers(1, 99), st.none() | st.just(Visible("5:9:6,7", until=12))),
            max_size=3,
        ),
        st.none() | st.just("public.users"),
    )
)
def test_a_position_survives_json(offset: Offset) -> None:
    assert Offset.parse(json.loads(json.dumps(offset.position()))) == offset


def test_the_position_of_another_database_is_refused() -> None:
    with pytest.raises(CaptureError, match=r"not one of a Postgres.*headwater capture snapshot"):
        Offset.parse({"file": "binlog.000001", "position": 4})


@pytest.mark.parametrize("xid", [2**32 - 1, 0, 5])
def test_numbers_of_transactions_run_in_a_circle(xid: int) -> None:
    low = (3 << 32) + 10
    assert Visible(f"{low}:{low + 5}:", until=0).shows(xid)
    assert not Visible(f"{low}:{low + 5}:", until=0).shows((low + 5) & 0xFFFFFFFF)


def test_places_in_the_log_are_written_as_postgres_does() -> None:
    assert lsn_text(0x16B374D848) == "16/B374D848"
    assert lsn_number("0/0") == 0
