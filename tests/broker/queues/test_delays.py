"""Delayed messages: what is stored of them, and the order in which they fall due."""

from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st

from headwater.broker.queues.delays import Timetable, decode_delayed, due_of, encode_delayed
from headwater.record.amqp.message import decode_value, encode_address, pack_message
from headwater.record.amqp.properties import Properties

DUE = st.integers(min_value=0, max_value=2**42)


@given(DUE, st.text(max_size=60), st.text(max_size=60), st.binary(max_size=300), st.booleans())
def test_what_is_stored_reads_back(
    due_ms: int, vhost: str, exchange: str, body: bytes, persistent: bool
) -> None:
    properties = Properties(headers={"x-delay": 5}, delivery_mode=2 if persistent else 1)
    message = pack_message(encode_address("e", "key"), properties, body)
    value = encode_delayed(due_ms, vhost, exchange, message)
    assert due_of(value) == (due_ms, persistent)
    found = decode_delayed(value)
    assert (found.due_ms, found.vhost, found.exchange) == (due_ms, vhost, exchange)
    again = decode_value(found.message)
    assert (again.exchange, again.routing_key, again.body()) == ("e", "key", body)


@given(st.lists(DUE, max_size=50), DUE)
def test_what_is_due_comes_out_by_time_and_equals_as_they_came(dues: list[int], now_ms: int) -> None:
    table = Timetable()
    for offset, due_ms in enumerate(dues):
        table.add(due_ms, offset)
    expected = sorted((due_ms, offset) for offset, due_ms in enumerate(dues) if due_ms <= now_ms)
    assert table.take(now_ms, 1000) == expected
    assert len(table) == len(dues) - len(expected)
    left = [due_ms for due_ms in dues if due_ms > now_ms]
    assert table.next_due() == (min(left) if left else None)


def test_no_more_than_asked_for_is_taken() -> None:
    table = Timetable()
    for offset in range(10):
        table.add(5, offset)
    assert table.take(5, 4) == [(5, 0), (5, 1), (5, 2), (5, 3)]
    assert len(table) == 6


def test_what_waits_no_more_is_dropped() -> None:
    table = Timetable()
    for offset in range(10):
        table.add(100 - offset, offset)
    table.keep(lambda offset: offset % 2 == 0)
    assert [offset for _, offset in table.take(1000, 100)] == [8, 6, 4, 2, 0]


def test_a_message_that_waits_is_a_number_of_forty_bytes() -> None:
    table = Timetable()
    table.add(1_800_000_000_000, 1_000_000_000)
    assert sys.getsizeof(table._heap[0]) <= 40
