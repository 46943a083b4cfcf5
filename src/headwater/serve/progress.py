"""How far the query of a view has read, so that a writer can wait for its own writes.

A place is `TOPIC:PARTITION:OFFSET`, as `POST /topics/TOPIC` answers with; several are joined by commas. Or it is in a
captured database, as `CAPTURE@POSITION` (`captured`). A pipeline
commits the offsets of its group, `headwater.APP.VIEW`, after the view's commit: within a second while it is busy,
at once when it has read everything.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from headwater.core.errors import HeadwaterError
from headwater.serve.broker import Broker, BrokerAway
from headwater.serve.captured import Captured
from headwater.serve.errors import HttpError
from headwater.views import ViewStore

__all__ = ["Place", "Progress", "read_places", "write_places"]

_POLL_SECONDS = 0.05
_MAX_PLACES = 100


class Place(NamedTuple):
    """A record in a topic."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"


def read_places(text: str) -> list[Place]:
    """Return the places in a text, or raise `HttpError`.

    >>> read_places("orders:0:42,orders:1:7")
    [Place(topic='orders', partition=0, offset=42), Place(topic='orders', partition=1, offset=7)]
    """
    places = []
    for each in text.split(","):
        topic, _, numbers = each.partition(":")
        partition, _, offset = numbers.partition(":")
        if not topic or not all(n.isascii() and n.isdigit() and len(n) < 19 for n in (partition, offset)):
            raise HttpError(400, f"wait={text} does not fit: write TOPIC:PARTITION:OFFSET, as a post answers")
        places.append(Place(topic, int(partition), int(offset)))
    if len(places) > _MAX_PLACES:
        raise HttpError(400, f"wait names at most {_MAX_PLACES} places")
    return places


def write_places(topic: str, written: Sequence[tuple[int, int]]) -> str:
    """Return the last of the records in each partition as a text.

    >>> write_places("orders", [(0, 41), (1, 7), (0, 42)])
    'orders:0:42,orders:1:7'
    """
    last: dict[int, int] = {}
    for partition, offset in written:
        last[partition] = max(offset, last.get(partition, offset))
    return ",".join(str(Place(topic, partition, offset)) for partition, offset in sorted(last.items()))


class Progress:
    """Asks the broker how far views have read: once for all who wait."""

    def __init__(self, store: ViewStore, broker: Broker | None) -> None:
        self._store = store
        self._broker = broker
        self._known: dict[str, tuple[float, dict[tuple[str, int], int]]] = {}
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._captured = None if broker is None else Captured(broker.url)

    async def wait(self, view: str, text: str, seconds: float) -> None:
        """Wait until a view has read the places that a text names; raise `HttpError` where the time is over."""
        if self._broker is None:
            raise HttpError(503, "no broker is given: start with --broker kafka://HOST:PORT")
        if "@" not in text:
            await self._wait(self._broker, view, read_places(text), seconds)
            return
        began = asyncio.get_running_loop().time()
        ends = await self._ends(text, seconds)
        left = max(seconds - (asyncio.get_running_loop().time() - began), 0.0)
        await self._wait(self._broker, view, ends, left, only_read=True)

    async def _ends(self, text: str, seconds: float) -> list[Place]:
        """Return the last records of a capture's topics, once it has passed a place of its database."""
        assert self._captured is not None
        capture, _, position = text.rpartition("@")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            try:
                ends = await asyncio.to_thread(self._captured.ends, capture, position)
            except BrokerAway as error:
                raise HttpError(503, str(error), {"Retry-After": "1"}) from None
            if ends is not None:
                return [Place(topic, partition, end - 1) for (topic, partition), end in ends.items()]
            if loop.time() >= deadline:
                problem = f"the capture {capture} has not passed {position} yet: ask again, or with a longer timeout"
                raise HttpError(504, problem, {"Retry-After": "1"})
            await asyncio.sleep(_POLL_SECONDS)

    async def _wait(
        self, broker: Broker, view: str, places: Sequence[Place], seconds: float, *, only_read: bool = False
    ) -> None:
        """Wait for places; with `only_read` for those in topics that the view reads, of which there has to be one."""
        await asyncio.to_thread(self._store.token, view)  # which refuses a view that nobody has defined
        group = await asyncio.to_thread(self._group, view)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            try:
                read = await self._read(broker, group)
            except BrokerAway as error:
                raise HttpError(503, str(error), {"Retry-After": "1"}) from None
            topics = {topic for topic, _ in read}
            counting = [place for place in places if not only_read or place.topic in topics]
            behind = next((p for p in counting if read.get((p.topic, p.partition), 0) <= p.offset), None)
            if behind is None and counting:
                return
            if loop.time() >= deadline:
                raise HttpError(504, _too_late(view, behind or places[0], read), {"Retry-After": "1"})
            await asyncio.sleep(_POLL_SECONDS)

    def _group(self, view: str) -> str:
        """Return the group of the query that writes a view."""
        names = [name for name in self._store.statuses() if name.partition(".")[2] == view]
        if not names:
            raise HttpError(
                503, f"no pipeline has written {view} yet: `headwater run` starts it", {"Retry-After": "1"}
            )
        return f"headwater.{names[0]}"

    async def _read(self, broker: Broker, group: str) -> dict[tuple[str, int], int]:
        loop = asyncio.get_running_loop()
        async with self._locks[group]:
            at, read = self._known.get(group, (0.0, {}))
            if loop.time() - at >= _POLL_SECONDS:
                try:
                    read = await asyncio.to_thread(broker.committed, group)
                except HeadwaterError as error:
                    raise BrokerAway(str(error)) from None
                self._known[group] = (loop.time(), read)
            return read


def _too_late(view: str, behind: Place, read: dict[tuple[str, int], int]) -> str:
    topics = {topic for topic, _ in read}
    if topics and behind.topic not in topics:
        return f"the view {view} does not read the topic {behind.topic}: it reads {', '.join(sorted(topics))}"
    at = read.get((behind.topic, behind.partition), 0)
    return (
        f"the view {view} has read the offsets before {at} of partition {behind.partition} of {behind.topic}, "
        f"and not {behind.offset} yet: ask again, or with a longer timeout"
    )
