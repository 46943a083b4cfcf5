"""The messages of pgoutput, without a server."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.capture.postgres.pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    MalformedMessage,
    Message,
    Other,
    Relation,
    RelationColumn,
    Truncate,
    Update,
    decode,
    decode_keepalive,
    status_update,
)

from .messages import EPOCH_US, encode

_oids = st.integers(0, 2**32 - 1)
_lsns = st.integers(0, 2**64 - 1)
_times = st.integers(EPOCH_US - 2**40, EPOCH_US + 2**60)
_names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=10)
_rows = st.lists(st.none() | st.just(UNCHANGED) | st.binary(max_size=20), max_size=5)
_columns = st.builds(RelationColumn, st.booleans(), _names, _oids, st.integers(-(2**31), 2**31 - 1))
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(Begin, _lsns, _times, _oids),
    st.builds(Commit, _lsns, _lsns, _times),
    st.builds(
        Relation, _oids, _names, _names, st.sampled_from("dnfi"), st.lists(_columns, max_size=4).map(tuple)
    ),
    st.builds(Insert, _oids, _rows),
    st.builds(
        lambda oid, is_key, old, new: Update(oid, is_key and old is not None, old, new),
        _oids,
        st.booleans(),
        st.none() | _rows,
        _rows,
    ),
    st.builds(Delete, _oids, st.booleans(), _rows),
    st.builds(Truncate, st.lists(_oids, max_size=4).map(tuple)),
)


@given(MESSAGES, st.integers(0, 30))
def test_what_a_server_writes_is_read_as_it_was_meant(message: Message, at: int) -> None:
    assert decode(b"x" * at + encode(message), at) == message


@settings(max_examples=50)
@given(MESSAGES)
def test_a_message_cut_off_anywhere_is_an_error(message: Message) -> None:
    data = encode(message)
    for end in range(len(data)):
        with pytest.raises(MalformedMessage, match="pgoutput"):
            decode(data[:end])


@given(MESSAGES)
def test_a_message_with_something_behind_it_is_an_error(message: Message) -> None:
    with pytest.raises(MalformedMessage):
        decode(encode(message) + b"\0")


@given(st.sampled_from([*"BCRIUDTYOM"]), st.binary(max_size=60))
def test_random_bytes_are_a_message_or_an_error(kind: str, data: bytes) -> None:
    with suppress(MalformedMessage):
        decode(kind.encode() + data)


def test_a_message_of_another_version_is_named() -> None:
    with pytest.raises(MalformedMessage, match="'S' in version 1"):
        decode(b"S\0\0\0\1")


def test_messages_that_change_no_row_are_passed_over() -> None:
    assert [decode(data) for data in (b"O" + b"\0" * 9, b"Y\0\0\0\1public\0mood\0")] == [
        Other("O"),
        Other("Y"),
    ]


def test_a_sign_of_life_says_how_far_the_log_was_read() -> None:
    data = b"k" + (77).to_bytes(8, "big") + (5).to_bytes(8, "big") + b"\1"
    assert decode_keepalive(data) == (77, EPOCH_US + 5, True)
    for end in range(len(data)):
        with pytest.raises(MalformedMessage):
            decode_keepalive(data[:end])


def test_a_status_confirms_one_place_in_the_log() -> None:
    update = status_update(0x1122, EPOCH_US + 7, wants_reply=True)
    place = (0x1122).to_bytes(8, "big")
    assert update == b"r" + place * 3 + (7).to_bytes(8, "big") + b"\1"
