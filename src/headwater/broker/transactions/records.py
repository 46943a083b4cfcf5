"""The records of `__transaction_state`, in Kafka's own layout, so that Kafka's tools read the topic.

A key is the schema's version (0) and the transactional id; a value is version 0, or 1 with tagged fields:

    0  previous producer id      the one before the epochs of an earlier id were used up
    1  next producer id          the one that follows when this transaction, the last of its id, ends
    2  client version            2 where the client ended its transaction by protocol v2 (KIP-890)

Kafka keeps one thing in memory alone: the epoch before the last bump, by which it knows a repeated
InitProducerId. Here everything comes from the log, so it stands in a tagged field far from Kafka's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from headwater.broker.groups.packing import CorruptGroupRecord, Reader, Writer
from headwater.broker.state import StateRecord

NO_ID = -1
NO_EPOCH = -1
MAX_EPOCH = 2**15 - 1
PROTOCOL_V2 = 2

_PREVIOUS_ID, _NEXT_ID, _CLIENT_VERSION, _LAST_EPOCH = 0, 1, 2, 1000
_I16 = struct.Struct(">h")
_I64 = struct.Struct(">q")


class TransactionState(IntEnum):
    """What a transactional id is at; Kafka's numbers."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """The state's name as Kafka's tools show it."""
        return self.name.title().replace("_", "")


PREPARED = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


class TopicPartition(NamedTuple):
    """A partition that takes part in a transaction."""

    topic: str
    partition: int


@dataclass(frozen=True)
class Transaction:
    """A transactional id: its producer, and its current or last transaction."""

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    updated_ms: int = -1
    started_ms: int = -1
    last_epoch: int = NO_EPOCH
    previous_id: int = NO_ID
    next_id: int = NO_ID
    client_version: int = 0

    @property
    def exhausted(self) -> bool:
        """Whether the producer id has no epoch left; the very last is kept to fence with."""
        return self.epoch >= MAX_EPOCH - 1

    @property
    def bumps_epoch(self) -> bool:
        """Whether its end raised the epoch, as protocol v2 has it."""
        return self.client_version >= PROTOCOL_V2


def key_of(transactional_id: str) -> bytes:
    """Return the key of a transactional id's records."""
    out = Writer()
    out.i16(0)
    out.string(transactional_id)
    return out.done()


def decode_key(data: bytes) -> str | None:
    """Return the transactional id in a key, or None when the key is of a kind that came later."""
    reader = Reader(data)
    return reader.string() if reader.i16() == 0 else None


def tombstone(transactional_id: str) -> StateRecord:
    """Return the record that forgets a transactional id."""
    return StateRecord(key_of(transactional_id), None)


def encode(transaction: Transaction) -> StateRecord:
    """Return the record of a transactional id."""
    out = Writer()
    out.i16(1)
    out.i64(transaction.producer_id)
    out.i16(transaction.epoch)
    out.i32(transaction.timeout_ms)
    out.i8(transaction.state)

    def topic(item: tuple[str, list[int]]) -> None:
        out.compact_string(item[0])
        out.compact_array(item[1], out.i32)
        out.no_tags()

    if transaction.state is TransactionState.EMPTY:
        out.uvarint(0)
    else:
        out.compact_array(by_topic(transaction.partitions), topic)
    out.i64(transaction.updated_ms)
    out.i64(transaction.started_ms)
    tags = {}
    if transaction.previous_id != NO_ID:
        tags[_PREVIOUS_ID] = _I64.pack(transaction.previous_id)
    if transaction.next_id != NO_ID:
        tags[_NEXT_ID] = _I64.pack(transaction.next_id)
    if transaction.client_version:
        tags[_CLIENT_VERSION] = _I16.pack(transaction.client_version)
    if transaction.last_epoch != NO_EPOCH:
        tags[_LAST_EPOCH] = _I16.pack(transaction.last_epoch)
    out.tags(tags)
    return StateRecord(key_of(transaction.transactional_id), out.done())


def decode(transactional_id: str, data: bytes) -> Transaction:
    """Return the transactional id in a record's value."""
    reader = Reader(data)
    version = reader.i16()
    if version not in (0, 1):
        raise CorruptGroupRecord(f"a transaction record has version {version}, readable are 0 and 1")
    producer_id, epoch, timeout_ms, state = reader.i64(), reader.i16(), reader.i32(), reader.i8()
    topics = _flexible_topics(reader) if version == 1 else _topics(reader)
    updated_ms, started_ms = reader.i64(), reader.i64()
    tags = reader.tags() if version == 1 else {}
    try:
        return Transaction(
            transactional_id,
            producer_id,
            epoch,
            timeout_ms,
            TransactionState(state),
            frozenset(TopicPartition(name, p) for name, partitions in topics for p in partitions),
            updated_ms,
            started_ms,
            last_epoch=_number(tags, _LAST_EPOCH, _I16, NO_EPOCH),
            previous_id=_number(tags, _PREVIOUS_ID, _I64, NO_ID),
            next_id=_number(tags, _NEXT_ID, _I64, NO_ID),
            client_version=_number(tags, _CLIENT_VERSION, _I16, 0),
        )
    except (ValueError, struct.error) as error:
        raise CorruptGroupRecord(f"a record of transactional id {transactional_id}: {error}") from None


def by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    """Return partitions as each topic's name and sorted partition numbers."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return list(topics.items())


def _flexible_topics(reader: Reader) -> list[tuple[str, list[int]]]:
    def topic() -> tuple[str, list[int]]:
        item = reader.compact_string(), reader.compact_array(reader.i32)
        reader.skip_tags()
        return item

    return reader.compact_nullable_array(topic) or []


def _topics(reader: Reader) -> list[tuple[str, list[int]]]:
    size = reader.i32()
    return [(reader.string(), reader.array(reader.i32)) for _ in range(size)]


def _number(tags: dict[int, bytes], tag: int, kind: struct.Struct, default: int) -> int:
    return int(kind.unpack(tags[tag])[0]) if tag in tags else default
