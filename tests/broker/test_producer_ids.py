"""Ids of producers: never the same twice, whatever happens between the log and the memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.broker.producer_ids import BLOCK, ProducerIds
from headwater.broker.state import StateRecord
from headwater.core.errors import ApiError


def test_ids_are_taken_from_a_reserved_block() -> None:
    ids = ProducerIds()
    with pytest.raises(ApiError):
        ids.take()
    for record in ids.reserve():
        ids.replay(record)
    assert ids.left == BLOCK
    assert [ids.take(), ids.take()] == [0, 1]


def test_records_of_others_are_left_alone() -> None:
    ids = ProducerIds()
    ids.replay(StateRecord(b"topic/a", b"{}"))
    ids.replay(StateRecord(b"producer_ids", None))
    assert ids.left == 0


@given(st.lists(st.sampled_from(["take", "take many", "restart", "lost write"]), max_size=40))
def test_no_id_is_given_twice(steps: list[str]) -> None:
    ids = ProducerIds()
    log: list[StateRecord] = []
    given_out: list[int] = []
    for step in steps:
        if step == "restart":
            ids = ProducerIds()
            for record in log:
                ids.replay(record)
            assert ids.left == 0
        elif step == "lost write":
            ids.reserve()
        for _ in range({"take": 1, "take many": BLOCK + 1}.get(step, 0)):
            if not ids.left:
                records = ids.reserve()
                log = records if len(log) > 3 else [*log, *records]
                for record in records:
                    ids.replay(record)
            given_out.append(ids.take())
    assert len(set(given_out)) == len(given_out)
    assert given_out == sorted(given_out)
