"""Offsets that a transaction commits: kept apart until it ends, then committed or forgotten.

Kafka writes them to `__consumer_offsets` in transactional batches, and they take effect with the marker
that follows. Here each is a record of its own kind under the producer's id. Committing a transaction
writes the same offsets as ordinary ones and deletes the pending ones, aborting it only deletes; either
can be done again after a crash until nothing is pending.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from headwater.broker.groups.records import CommittedOffset, offset_record, pending_record
from headwater.broker.state import StateRecord


class Place(NamedTuple):
    """What an offset is committed for."""

    group: str
    topic: str
    partition: int


class PendingOffsets:
    """The offsets of transactions that have not ended, by producer id."""

    def __init__(self) -> None:
        self._producers: dict[int, dict[Place, CommittedOffset]] = {}
        self._places: dict[Place, set[int]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def producer_ids(self) -> Collection[int]:
        """Return the producers that have offsets pending."""
        return self._producers.keys()

    def has(self, group: str, topic: str, partition: int) -> bool:
        """Tell whether a transaction is about to commit an offset for a partition."""
        return Place(group, topic, partition) in self._places

    def has_group(self, group: str) -> bool:
        """Tell whether a transaction is about to commit an offset of a group."""
        return any(place.group == group for place in self._places)

    def put(self, producer_id: int, place: Place, value: CommittedOffset | None) -> None:
        """Set or forget a pending offset; only `replay` calls this."""
        if value is not None:
            self._producers.setdefault(producer_id, {})[place] = value
            self._places.setdefault(place, set()).add(producer_id)
            return
        offsets = self._producers.get(producer_id, {})
        if offsets.pop(place, None) is None:
            return
        if not offsets:
            del self._producers[producer_id]
        self._places[place].discard(producer_id)
        if not self._places[place]:
            del self._places[place]

    def ended(self, producer_id: int, *, commit: bool) -> list[StateRecord]:
        """Return the records that end what a producer has pending."""
        ending: list[StateRecord] = []
        for place, value in self._producers.get(producer_id, {}).items():
            if commit:
                ending.append(offset_record(*place, value))
            ending.append(pending_record(producer_id, *place, None))
        return ending

    def tombstones(self, *, group: str | None = None, topics: Collection[str] = ()) -> Iterator[StateRecord]:
        """Yield the records that forget what is pending for a group, or for topics."""
        for place, producer_ids in self._places.items():
            if place.group == group or place.topic in topics:
                for producer_id in producer_ids:
                    yield pending_record(producer_id, *place, None)
