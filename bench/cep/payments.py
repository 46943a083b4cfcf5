"""The payments that every engine looks for card testing in: small ones, again and again, and then a large one.

They are in order of time, and no engine has to be told what comes at the same instant.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer

from bench.clients import QUIET, create_topics, require_delivered

TOPIC = "payments"
PARTITIONS = 4
SCHEMA = "card string, amount double, at timestamp"
CARDS = 10_000
SMALL = 2.0
LARGE = 500.0
WITHIN = "10 minutes"
WITHIN_MS = 600_000
LEAST = 3
LATENESS = "10 seconds"
FIRST_MS = 1_767_225_600_000
# A card pays every hundred seconds or so: four payments in a row may or may not lie within ten minutes.
BEAT_MS = 10
_FLUSH_SECONDS = 120.0
_POLL_EVERY = 1_000


class Payment(NamedTuple):
    """One payment."""

    card: int
    amount: float
    at_ms: int


def payments(count: int) -> Iterator[Payment]:
    """Return the payments, the same ones each time.

    >>> next(payments(1))
    Payment(card=2471, amount=600.5, at_ms=1767225600000)
    """
    rng = random.Random(7)
    for number in range(count):
        share = rng.random()
        amount = 1.25 if share < 0.3 else 600.5 if share < 0.35 else 100.25
        yield Payment(rng.randrange(CARDS), amount, FIRST_MS + number * BEAT_MS + number % 7)


def write_files(directory: Path, count: int, files: int) -> list[Path]:
    """Write `card,amount,at` by card to as many files as there are readers, each in order of time."""
    paths = [directory / f"payments-{number}.csv" for number in range(files)]
    with ExitStack() as stack:
        opened = [stack.enter_context(path.open("w")) for path in paths]
        for card, amount, at_ms in payments(count):
            opened[card % files].write(f"{card},{amount},{at_ms}\n")
    return paths


def fill(bootstrap: str, count: int) -> int:
    """Write the payments to a topic by card, and a last one of nobody's to each partition; return how many."""
    create_topics(bootstrap, [TOPIC], PARTITIONS)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": 1_000_000, "log_level": QUIET}
    )
    last = FIRST_MS
    for number, (card, amount, at_ms) in enumerate(payments(count)):
        last = at_ms
        _produce(producer, card % PARTITIONS, card, amount, at_ms)
        if number % _POLL_EVERY == 0:
            producer.poll(0)
    for partition in range(PARTITIONS):  # so that time goes on past the last payment
        _produce(producer, partition, -1, 100.25, last + 86_400_000)
    require_delivered(producer.flush(_FLUSH_SECONDS))
    return count + PARTITIONS


def _produce(producer: Producer, partition: int, card: int, amount: float, at_ms: int) -> None:
    # Times as numbers of milliseconds would be cheaper to read; as text they are what producers send.
    seconds, milliseconds = divmod(at_ms, 1000)
    day, second = divmod(seconds - FIRST_MS // 1000, 86_400)
    time = (
        f"2026-01-{day + 1:02}T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.{milliseconds:03}Z"
    )
    value = f'{{"card":"{card}","amount":{amount},"at":"{time}"}}'
    while True:
        try:
            producer.produce(TOPIC, value, str(card), partition=partition)
            return
        except BufferError:
            producer.poll(0.01)


def expected(count: int) -> dict[str, int]:
    """Return the checksum of the matches, found without any engine."""

    def matches() -> Iterator[tuple[int, int, int, int]]:
        runs: dict[int, list[int]] = {}
        for card, amount, at_ms in payments(count):
            if amount < SMALL:
                runs.setdefault(card, []).append(at_ms)
                continue
            run = runs.pop(card, [])
            if amount > LARGE:
                near = [start for start in run if at_ms - start <= WITHIN_MS]
                if len(near) >= LEAST:
                    yield card, near[0], at_ms, len(near) + 1

    return checksum(matches())


def checksum(matches: Iterator[tuple[int, int, int, int]]) -> dict[str, int]:
    """Return how many matches (card, start, end in ms, rows) there are, and a sum that tells other ones apart."""
    found = total = 0
    for card, start_ms, end_ms, rows in matches:
        found += 1
        total += card * 31 + (start_ms - FIRST_MS) * 17 + (end_ms - FIRST_MS) + rows
    return {"found": found, "sum": total}
