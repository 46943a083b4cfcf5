"""Planned events as record batches, each within what the topic takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.core.errors import HeadwaterError
from headwater.events.envelope import encode
from headwater.events.event import Event
from headwater.events.plan import Planned
from headwater.events.sift import Found
from headwater.record.batch import HEADER_SIZE
from headwater.record.records import Record, encode_batch

__all__ = ["Batch", "TooLarge", "encode_batches"]

_RECORD_OVERHEAD = 64
"""More than the lengths, deltas and header names of a record take."""


class TooLarge(HeadwaterError):
    """An event that is larger than its topic's batches may be."""

    def __init__(self, event: Event, size: int, limit: int) -> None:
        super().__init__(
            f"{event.type} of {event.stream} takes {size} bytes, and the topic's max.message.bytes is {limit}: keep "
            "large data elsewhere and put its address into the event, or raise the limit"
        )
        self.event = event


@dataclass(frozen=True)
class Batch:
    """A record batch, and the events that it holds."""

    data: bytearray
    found: list[Found]

    def place(self, partition: int, base: int) -> list[Found]:
        """Tell the events where they are in the log, and return them."""
        for number, (event, _) in enumerate(self.found):
            # Nobody else has them yet: a copy of each would cost more than all of its encoding.
            object.__setattr__(event, "partition", partition)
            object.__setattr__(event, "offset", base + number)
        return self.found


def encode_batches(planned: Sequence[Planned], limit: int) -> list[Batch]:
    """Return batches of at most `limit` bytes, in order; raise `TooLarge` where one event is larger."""
    batches: list[Batch] = []
    records: list[Record] = []
    found: list[Found] = []
    size = HEADER_SIZE
    for event, data, metadata, _, sealed in planned:
        record = encode(event, data, metadata, len(records), sealed)
        own = _size(record)
        if HEADER_SIZE + own > limit:
            raise TooLarge(event, own, limit)
        if size + own > limit:
            batches.append(Batch(encode_batch(records), found))
            records, found, size = [], [], HEADER_SIZE
            record = record._replace(offset=0)
        records.append(record)
        found.append(Found(event, record.value or b""))
        size += own
    batches.append(Batch(encode_batch(records), found))
    return batches


def _size(record: Record) -> int:
    headers = sum(len(name) + len(value or b"") + 4 for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + _RECORD_OVERHEAD
