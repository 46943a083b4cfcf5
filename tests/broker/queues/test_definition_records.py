"""The records of what is declared."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.broker.queues import records
from headwater.broker.queues.definitions import Binding, Exchange, ExchangeKind, QueueDefinition
from headwater.broker.queues.records import CorruptDefinition, RecordKey, RecordKind
from headwater.broker.state import StateRecord
from headwater.record.amqp.tables import Table

from .declared import Declared

NAMES = st.binary(max_size=20).map(lambda raw: raw.decode(errors="surrogateescape"))
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=5),
    st.lists(st.integers(0, 9), max_size=3),
)
TABLES: st.SearchStrategy[Table] = st.dictionaries(st.text(max_size=5), VALUES, max_size=4)
EXCHANGES = st.builds(
    Exchange, NAMES, NAMES, st.sampled_from(ExchangeKind), st.booleans(), st.booleans(), st.booleans(), TABLES
)
QUEUES = st.builds(
    QueueDefinition,
    NAMES,
    NAMES,
    st.binary(min_size=16, max_size=16),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    TABLES,
    st.none() | st.integers(0, 2**40),
)
BINDINGS = st.builds(Binding, NAMES, NAMES, st.sampled_from(["queue", "exchange"]), NAMES, TABLES)


@given(EXCHANGES)
def test_an_exchange_that_is_written_is_read(exchange: Exchange) -> None:
    record = records.exchange_record(exchange)
    key = records.decode_key(record.key)
    assert key == RecordKey(RecordKind.EXCHANGE, exchange.vhost, exchange.name)
    assert record.value is not None
    assert records.decode_exchange(key, record.value) == exchange


@given(QUEUES)
def test_a_queue_that_is_written_is_read(queue: QueueDefinition) -> None:
    record = records.queue_record(queue)
    key = records.decode_key(record.key)
    assert key == RecordKey(RecordKind.QUEUE, queue.vhost, queue.name)
    assert record.value is not None
    found = records.decode_queue(key, record.value)
    assert found == queue
    assert found.settings == queue.settings


@given(NAMES, BINDINGS)
def test_a_binding_that_is_written_is_read(vhost: str, binding: Binding) -> None:
    record = records.binding_record(vhost, binding)
    assert records.decode_key(record.key) == RecordKey(RecordKind.BINDING, vhost, binding=binding)


@given(EXCHANGES, QUEUES, st.data())
def test_a_value_that_is_cut_or_changed_reads_as_a_definition_or_not_at_all(
    exchange: Exchange, queue: QueueDefinition, data: st.DataObject
) -> None:
    for record, decode in (
        (records.exchange_record(exchange), records.decode_exchange),
        (records.queue_record(queue), records.decode_queue),
    ):
        assert record.value is not None
        key = records.decode_key(record.key)
        assert key is not None
        damaged = bytearray(record.value[: data.draw(st.integers(0, len(record.value)))])
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
        with suppress(CorruptDefinition):
            decode(key, bytes(damaged))


@given(BINDINGS, st.data())
def test_a_key_that_is_cut_is_found_out(binding: Binding, data: st.DataObject) -> None:
    key = records.binding_key("/", binding)
    with pytest.raises(CorruptDefinition):
        records.decode_key(key[: data.draw(st.integers(0, len(key) - 1))])


def test_a_kind_of_record_that_came_later_is_passed_over() -> None:
    declared = Declared()
    version = declared.definitions.version
    declared.apply([StateRecord(b"\xffwhatever", b"\x00")])
    assert declared.definitions.version == version


def test_a_value_of_a_later_version_is_refused() -> None:
    with pytest.raises(CorruptDefinition, match="version 9, readable is 0"):
        records.decode_queue(RecordKey(RecordKind.QUEUE, "/", "q"), b"\x09")
    with pytest.raises(CorruptDefinition, match="version 9, readable is 0"):
        Declared().apply([StateRecord(records.vhost_key("v"), b"\x09")])
