"""The shop's customers and sensors, made up as time goes on.

Events happen at a moment and reach the broker somewhat later, each after a delay of its own, so they are out of
order as they are in any shop; sensors moreover have clocks that are minutes to hours wrong. Random numbers and
time come from outside, so that the same ones make the same events.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any

__all__ = ["Event", "Shop"]

TERMS = {"kettle": 0.8, "teapot": 0.6, "mug": 0.45, "spoon": 0.3, "samovar": 0.1}
"""What people search for, and how often they then click on something."""
COUNTRIES = {"NL": 5, "DE": 4, "FR": 3, "JP": 2}
ROOMS = {"cellar": 12.0, "kitchen": 21.0, "roof": 27.0}
UNPAID = 0.12
SENSORS_PER_ROOM = 3
_TIDE_SECONDS = 60.0
_BUFFERED_SECONDS = 3.0


@dataclass(frozen=True, order=True)
class Event:
    """A record, and the moment at which it reaches the broker."""

    due: float
    topic: str = field(compare=False)
    key: str = field(compare=False)
    value: dict[str, Any] = field(compare=False)


class Shop:
    """What happens in the shop from one moment to the next."""

    def __init__(self, random: Random, now: float, rate: float) -> None:
        self._random = random
        self._now = now
        self._rate = rate
        self._visits = self._orders = 0
        self._pending: list[Event] = []
        self._clock_errors = {
            f"{room}-{number}": random.choice((-1, 1)) * random.uniform(60, 7200)
            for room in ROOMS
            for number in range(1, SENSORS_PER_ROOM + 1)
        }
        self._next_reading = now

    def until(self, now: float) -> Iterator[Event]:
        """Yield the events that reach the broker by `now`, in the order in which they do."""
        while (upcoming := self._now + self._pause()) <= now:
            self._now = upcoming
            self._visit(upcoming)
        while self._next_reading <= now:
            self._read(self._next_reading)
            self._next_reading += 1.0
        while self._pending and self._pending[0].due <= now:
            yield heapq.heappop(self._pending)

    def _pause(self) -> float:
        """Return the time to the next visit: more come at the height of the tide than at its ebb."""
        tide = 1 + 0.6 * math.sin(2 * math.pi * self._now / _TIDE_SECONDS)
        return 1 / (self._rate * tide)

    def _visit(self, at: float) -> None:
        """Let somebody search, perhaps click, perhaps order, and then usually pay."""
        random = self._random
        self._visits += 1
        search_id, (terms,) = f"s{self._visits:08d}", random.choices(list(TERMS))
        self._send(
            at, "searches", search_id, {"search_id": search_id, "terms": terms, "searched_at": iso(at)}
        )
        if random.random() > TERMS[terms]:
            return
        at += random.uniform(0.5, 6)
        click = {"search_id": search_id, "product": f"{terms}-{random.randint(1, 9)}", "clicked_at": iso(at)}
        self._send(at, "clicks", search_id, click)
        if random.random() < 0.5:
            self._order(at + random.uniform(0.5, 3))

    def _order(self, at: float) -> None:
        random = self._random
        self._orders += 1
        order_id = f"o{self._orders:08d}"
        (country,) = random.choices(list(COUNTRIES), list(COUNTRIES.values()))
        amount = round(random.lognormvariate(3, 0.8), 2)
        order = {"order_id": order_id, "country": country, "amount": amount, "placed_at": iso(at)}
        self._send(at, "orders", order_id, order)
        if random.random() > UNPAID:
            paid = at + random.uniform(0.5, 7)
            self._send(paid, "payments", order_id, {"order_id": order_id, "paid_at": iso(paid)})

    def _read(self, at: float) -> None:
        """Let every sensor measure, and send when it has a connection."""
        for sensor, error in self._clock_errors.items():
            room = sensor.partition("-")[0]
            sent = at + self._random.uniform(0.1, _BUFFERED_SECONDS)
            celsius = ROOMS[room] + 2 * math.sin(at / 20) + self._random.gauss(0, 0.3)
            reading = {
                "sensor": sensor,
                "room": room,
                "celsius": round(celsius, 2),
                "occurred": iso(at + error),
                "sent": iso(sent + error),
                "received": iso(sent + 0.05),
            }
            self._send(sent + 0.05, "readings", sensor, reading)

    def _send(self, at: float, topic: str, key: str, value: dict[str, Any]) -> None:
        """Let an event reach the broker: most at once, some a second or two later."""
        delay = min(2.5, self._random.expovariate(4)) if topic != "readings" else 0.0
        heapq.heappush(self._pending, Event(at + delay, topic, key, value))


def iso(seconds: float) -> str:
    """Return a moment as the text that JSON holds.

    >>> iso(0)
    '1970-01-01T00:00:00.000Z'
    """
    moment = datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
    return moment.isoformat(timespec="milliseconds") + "Z"
