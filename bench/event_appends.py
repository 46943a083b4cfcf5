"""Callers that execute commands on accounts, each waiting for its own to be durable: a process of either side.

    python -m bench.event_appends SIDE BOOTSTRAP DIRECTORY CALLERS COMMANDS

prints the commands per second.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from bench.figures import EVENTSOURCING

NOTE = "x" * 50
Work = Callable[[int, int], None]
"""Executes so many commands as the caller with a number."""


def ours(bootstrap: str, directory: Path) -> Work:
    from headwater.events import Event, EventStore, NewEvent

    class Account:
        def __init__(self) -> None:
            self.balance = 0

        def on_deposited(self, event: Event) -> None:
            self.balance += event.data["amount"]

        def deposit(self, amount: int, note: str) -> NewEvent:
            return NewEvent("Deposited", {"amount": amount, "note": note})

    store = EventStore(f"kafka://{bootstrap}", "accounts", directory=directory, partitions=1)
    accounts = store.aggregates(Account)

    def work(caller: int, count: int) -> None:
        for _ in range(count):
            accounts.execute(f"account-{caller}", Account.deposit, 10, NOTE)

    return work


def theirs(bootstrap: str, directory: Path) -> Work:
    # WAL and synchronous=FULL are its defaults: a commit is on the disk when it returns.
    os.environ["PERSISTENCE_MODULE"] = "eventsourcing.sqlite"
    os.environ["SQLITE_DBNAME"] = str(directory / "accounts.db")
    os.environ["SQLITE_LOCK_TIMEOUT"] = "60"  # or callers give up while they wait for each other
    from uuid import UUID

    from eventsourcing.application import Application
    from eventsourcing.domain import Aggregate, event

    class Account(Aggregate):
        def __init__(self) -> None:
            self.balance = 0

        @event("Deposited")
        def deposit(self, amount: int, note: str) -> None:
            self.balance += amount

    app: Application[UUID] = Application()
    accounts: dict[int, Account] = {}

    def work(caller: int, count: int) -> None:
        account = accounts.get(caller) or accounts.setdefault(caller, Account())
        for _ in range(count):
            account.deposit(10, NOTE)
            app.save(account)

    return work


def measure(work: Work, callers: int, commands: int) -> float:
    """Return the rate of callers that share so many commands, after a tenth of them that does not count."""
    _run(work, callers, max(commands // 10, callers))
    began = time.perf_counter()
    done = _run(work, callers, commands)
    return done / (time.perf_counter() - began)


def _run(work: Work, callers: int, commands: int) -> int:
    failures: list[BaseException] = []

    def caller(number: int) -> None:
        try:
            work(number, commands // callers)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=caller, args=(number,)) for number in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return commands // callers * callers


if __name__ == "__main__":
    side, bootstrap, place, callers, commands = sys.argv[1:]
    work = (theirs if side == EVENTSOURCING else ours)(bootstrap, Path(place))
    print(measure(work, int(callers), int(commands)), flush=True)
    os._exit(0)  # neither side has anything left to save
