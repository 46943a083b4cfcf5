"""Where a store is, an account to keep in it, and a process that appends to it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.events import Event, EventStore, NewEvent, Refused


@dataclass(frozen=True)
class Place:
    """A store's broker, name and directory."""

    broker: str
    name: str
    directory: Path

    def open(self, **options: Any) -> EventStore:
        settings: dict[str, Any] = {"directory": self.directory, "partitions": 1} | options
        return EventStore(self.broker, self.name, **settings)


def eventually(holds: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Account:
    """An account in cents."""

    folded = 0
    """How many events all accounts have folded."""

    def __init__(self) -> None:
        self.balance = 0

    def on_deposited(self, event: Event) -> None:
        Account.folded += 1
        self.balance += event.data["amount"]

    def on_withdrawn(self, event: Event) -> None:
        Account.folded += 1
        self.balance -= event.data["amount"]

    def deposit(self, amount: int) -> NewEvent:
        return deposited(amount)

    def withdraw(self, amount: int) -> NewEvent:
        if amount > self.balance:
            raise Refused(f"the balance of {self.balance} does not cover {amount}")
        return NewEvent("Withdrawn", {"amount": amount})


def deposited(amount: int = 1) -> NewEvent:
    return NewEvent("Deposited", {"amount": amount})


def versions(store: EventStore, stream: str) -> list[int]:
    return [event.version for event in store.read(stream)]


def together(count: int, work: Callable[[int], None]) -> None:
    """Run work in threads, and raise what one of them raised."""
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    if failures:
        raise failures[0]


class Appender:
    """A process that appends to a stream and prints each version that was acknowledged, with the event's id."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.acknowledged: list[tuple[int, str]] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            version, identity = json.loads(line)
            self.acknowledged.append((version, identity))

    def wait(self, seconds: float = 60) -> int:
        status = self.process.wait(seconds)
        self._thread.join(10)
        return status


@contextmanager
def appender(
    place: Place, stream: str, count: int, *, index: str = "own", claim: bool = False
) -> Iterator[Appender]:
    """Start an appender with an index of its own."""
    script = Path(__file__).with_name("appender.py")
    command = [
        sys.executable,
        str(script),
        place.broker,
        place.name,
        str(place.directory / index),
        stream,
        str(count),
    ]
    process = subprocess.Popen([*command, str(int(claim))], stdout=subprocess.PIPE, text=True)
    running = Appender(process)
    try:
        yield running
    finally:
        process.kill()
        running.wait()
        assert process.stdout is not None
        process.stdout.close()
