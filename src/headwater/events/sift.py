"""Which records of a topic are events: those of a store's writer, each at the next version of its stream.

A writer writes in transactions, so whatever came outside of one is another producer's. A record that does
not read as an event, or whose version does not follow, is left out and counted; it stops nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from headwater.events.envelope import NotAnEvent, decode
from headwater.events.event import Event
from headwater.events.plan import Head
from headwater.record.records import Record

__all__ = ["Found", "Skipped", "sift"]


class Skipped(NamedTuple):
    """A record that is no event, and why."""

    offset: int
    reason: str


class Found(NamedTuple):
    """An event, and its record's value."""

    event: Event
    value: bytes


def sift(
    partition: int, records: Iterable[tuple[Record, bool]], head: Callable[[str], Head]
) -> Iterator[Found | Skipped]:
    """Yield what each record is; they come with whether they belong to a transaction.

    `head` says where streams end before the first of these records.
    """
    heads: dict[str, int] = {}
    for record, transactional in records:
        if not transactional:
            yield Skipped(record.offset, "it came outside of a transaction")
            continue
        try:
            event = decode(record.key, record.value, partition, record.offset)
        except NotAnEvent as error:
            yield Skipped(record.offset, str(error))
            continue
        version = heads.get(event.stream)
        if version is None:
            version = head(event.stream).version
        if event.version != version + 1:
            reason = f"it is version {event.version} of {event.stream}, which is at version {version}"
            yield Skipped(record.offset, reason)
            continue
        heads[event.stream] = event.version
        yield Found(event, record.value or b"")
