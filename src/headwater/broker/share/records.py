"""The records of `__share_group_state`: Kafka's share snapshots, each the whole state of a share partition.

    key    ShareSnapshotKey, kind 0       group, topic id, partition
    value  ShareSnapshotValue, version 0  epochs, start offset, times, and runs of offsets with their state

Kafka writes updates between two snapshots. Here every change is a snapshot: the runs are few, and a newest
value for each key is what the log behind a state machine keeps. A run that is acquired is written with how
often it was delivered before, as state 1, which Kafka keeps to itself: a restart takes it for available.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from headwater.broker.groups.packing import CorruptGroupRecord, Reader, Writer
from headwater.broker.share.in_flight import RecordState
from headwater.broker.state import StateRecord

_SNAPSHOT = 0
_VERSION = 0
_DELIVERY_COMPLETE = 0  # a tag
_RUN = struct.Struct(">qqbhB")  # first and last offset, state, deliveries, no tags
_STATES = {int(state): state for state in RecordState}


class ShareKey(NamedTuple):
    """A partition as one group shares it."""

    group: str
    topic_id: UUID
    partition: int


class StateRun(NamedTuple):
    """Offsets with one state, as they are stored."""

    first: int
    last: int
    state: RecordState
    deliveries: int


@dataclass(frozen=True)
class Snapshot:
    """The stored state of a share partition."""

    epoch: int
    """Grows with each snapshot."""
    state_epoch: int
    """Grows when an administrator sets the start offset."""
    start_offset: int
    created_ms: int
    written_ms: int
    runs: tuple[StateRun, ...] = ()
    complete: int = 0
    """How many records from the start offset on are final."""


def decode_key(data: bytes) -> ShareKey | None:
    """Return the key in `data`, or None when it is of another kind."""
    reader = Reader(data)
    if reader.i16() != _SNAPSHOT:
        return None
    return ShareKey(reader.string(), reader.uuid(), reader.i32())


def snapshot_record(key: ShareKey, snapshot: Snapshot | None) -> StateRecord:
    """Return the record of a share partition's state, or of its deletion."""
    out = Writer()
    out.i16(_SNAPSHOT)
    out.string(key.group)
    out.uuid(key.topic_id)
    out.i32(key.partition)
    return StateRecord(out.done(), None if snapshot is None else _encode(snapshot))


def _encode(value: Snapshot) -> bytes:
    out = Writer()
    out.i16(_VERSION)
    out.i32(value.epoch)
    out.i32(value.state_epoch)
    out.i32(0)  # the leader's epoch
    out.i64(value.start_offset)
    out.i64(value.created_ms)
    out.i64(value.written_ms)
    out.rows(_RUN, [(*run, 0) for run in value.runs])
    out.tags({_DELIVERY_COMPLETE: value.complete.to_bytes(4, "big")})
    return out.done()


def decode_snapshot(data: bytes) -> Snapshot:
    """Return the state in a record's value."""
    reader = Reader(data)
    if (version := reader.i16()) != _VERSION:
        raise CorruptGroupRecord(f"a share snapshot has version {version}, readable is {_VERSION}")
    epoch, state_epoch, _ = reader.i32(), reader.i32(), reader.i32()
    start_offset, created_ms, written_ms = reader.i64(), reader.i64(), reader.i64()
    rows = reader.rows(_RUN)
    try:
        runs = tuple(
            StateRun(first, last, _STATES[state], deliveries) for first, last, state, deliveries, _ in rows
        )
    except KeyError as error:
        raise CorruptGroupRecord(f"a share record's state is none of Kafka's: {error}") from None
    complete = int.from_bytes(reader.tags().get(_DELIVERY_COMPLETE, b""), "big")
    return Snapshot(epoch, state_epoch, start_offset, created_ms, written_ms, runs, complete)
