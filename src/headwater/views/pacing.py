"""How an alert's rows become messages: each by itself, one for an incident, or together in a digest.

With a throttle, the first row of a group is a message at once, and the group is then quiet for a time. Rows that
come meanwhile are counted; where there were any, one message sums them up at the end of that time, and another
quiet time begins with it. So a group has one message in each such time, however many rows it has, and none of its
rows goes untold. An `Incident` is what has to be remembered of a group for that: the store keeps it in the
transaction that makes the messages, so a crash loses no row and tells none twice.

With a digest, messages wait for the next multiple of its time, and are then sent together.

Nothing here knows a clock or a store. Times are in seconds since the epoch.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Delivery", "Entry", "Incident", "Paced", "Pacing", "group_of", "pace"]

_LONGEST_GROUP = 500


class Delivery(NamedTuple):
    """A message on its way: how often it was tried, when it is next, and what went wrong last."""

    token: int
    key: str
    row: str
    tries: int = 0
    next_at: float = 0.0
    error: str | None = None
    held: int = 0
    """How many rows that were held back it sums up, of which `row` is the last; 0 where it is a row by itself."""


class Entry(NamedTuple):
    """A row of an alert that has to become a message, or a part of one."""

    token: int
    key: str
    row: str


class Incident(NamedTuple):
    """A group that is quiet: until when, and the rows that it held back."""

    until: float
    held: int = 0
    token: int = 0
    """Of the first row that was held back: the summary bears it."""
    key: str = ""
    row: str = ""
    """The last row that was held back."""


@dataclass(frozen=True)
class Pacing:
    """What an alert declares about its messages; times are in seconds."""

    group_by: tuple[str, ...] = ()
    throttle: float | None = None
    digest: float | None = None

    def due(self, now: float) -> float:
        """Return up to which end of a quiet time an incident is over: all of them, without a throttle."""
        return now if self.throttle is not None else math.inf

    def send_at(self, now: float) -> float:
        """Return when a message that is made now is to be sent; 0 is at once."""
        return 0.0 if self.digest is None else (now // self.digest + 1) * self.digest


@dataclass
class Paced:
    """What came of some rows: messages, and what is now known of the groups that were touched."""

    deliveries: list[Delivery] = field(default_factory=list)
    incidents: dict[str, Incident | None] = field(default_factory=dict)
    """None where a group's incident is over."""


def pace(pacing: Pacing, now: float, known: Mapping[str, Incident], entries: Iterable[Entry]) -> Paced:
    """Return what becomes of incidents that are over, and then of rows.

    `known` are the incidents that are over, and those of the rows' groups.
    """
    paced = Paced()
    groups: dict[str, Incident] = dict(known)
    for group in list(groups):
        _end(pacing, now, groups, group, paced)
    for entry in entries:
        if pacing.throttle is None:
            paced.deliveries.append(Delivery(*entry, next_at=pacing.send_at(now)))
            continue
        group = group_of(pacing, entry.row)
        _end(pacing, now, groups, group, paced)
        incident = groups.get(group)
        if incident is None:
            paced.deliveries.append(Delivery(*entry))
            groups[group] = Incident(now + pacing.throttle)
        else:
            token = incident.token if incident.held else entry.token
            groups[group] = Incident(incident.until, incident.held + 1, token, entry.key, entry.row)
        paced.incidents[group] = groups[group]
    return paced


def group_of(pacing: Pacing, row: str) -> str:
    """Return the text that tells a row's group from others.

    >>> group_of(Pacing(("card",), 60.0), '{"card": "c1", "amount": 5}')
    '["c1"]'
    """
    if not pacing.group_by:
        return "[]"
    columns = json.loads(row)
    text = json.dumps([columns.get(column) for column in pacing.group_by], sort_keys=True)
    # Stores keep it as a key, which is not to be arbitrarily long.
    return text if len(text) <= _LONGEST_GROUP else hashlib.sha256(text.encode()).hexdigest()


def _end(pacing: Pacing, now: float, groups: dict[str, Incident], group: str, paced: Paced) -> None:
    """End a group's quiet time if it is over; a summary begins another."""
    incident = groups.get(group)
    if incident is None or incident.until > pacing.due(now):
        return
    del groups[group]
    paced.incidents[group] = None
    if incident.held:
        paced.deliveries.append(Delivery(incident.token, incident.key, incident.row, held=incident.held))
        if pacing.throttle is not None:
            groups[group] = paced.incidents[group] = Incident(now + pacing.throttle)
