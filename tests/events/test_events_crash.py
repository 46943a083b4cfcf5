"""Crashes: what was acknowledged is there, once, and no version is missing, whoever is killed."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack

import pytest

from headwater.events import EventError, EventStore, NewEvent
from headwater.testing.kafka import RealKafka
from headwater.testing.process import BrokerProcess

from .stores import Appender, Place, appender, together, versions

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]


def check(place: Place, stream: str, acknowledged: list[tuple[int, str]]) -> list[str]:
    """Check a stream against what was acknowledged, by a new index; return the ids that it holds."""
    with place.open(directory=place.directory / "check", partitions=None) as store:
        events = list(store.read(stream))
    assert [event.version for event in events] == list(range(1, len(events) + 1))
    ids = [event.id for event in events]
    assert len(set(ids)) == len(ids)
    for version, identity in acknowledged:
        assert ids[version - 1] == identity
    return ids


def await_acknowledged(running: Appender, count: int, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while len(running.acknowledged) < count:
        assert time.monotonic() < deadline, f"only {len(running.acknowledged)} appends were acknowledged"
        assert running.process.poll() is None, "the appender ended"
        time.sleep(0.01)


def test_a_killed_writer_loses_nothing_that_it_acknowledged(place: Place) -> None:
    acknowledged: list[tuple[int, str]] = []
    with place.open():
        pass
    for _ in range(3):
        with appender(place, "ann", 100_000) as running:
            await_acknowledged(running, 20)
            running.process.kill()
            running.wait()
            acknowledged += running.acknowledged
    check(place, "ann", acknowledged)
    with place.open() as store:
        after = store.append("ann", NewEvent("Counted", {"n": 0}))
        assert versions(store, "ann") == list(range(1, after.version + 1))


def test_processes_that_take_the_partition_from_each_other_lose_nothing(place: Place) -> None:
    with place.open():
        pass
    with ExitStack() as stack:
        running = [
            stack.enter_context(appender(place, "ann", 8, index=f"own-{number}", claim=True))
            for number in range(3)
        ]
        assert [each.wait() for each in running] == [0, 0, 0]
        acknowledged = [one for each in running for one in each.acknowledged]
    assert len(check(place, "ann", acknowledged)) == len(acknowledged) == 24


def test_a_second_process_shuts_the_first_one_out(place: Place) -> None:
    with place.open():
        pass
    with appender(place, "ann", 100_000, index="first") as first:
        await_acknowledged(first, 5)
        with appender(place, "ann", 20, index="second") as second:
            assert second.wait() == 0
        assert first.wait() == 1  # it ends with the error that says so
        check(place, "ann", [*first.acknowledged, *second.acknowledged])


def test_a_killed_broker_loses_nothing_that_was_acknowledged(
    server: BrokerProcess | RealKafka, place: Place
) -> None:
    rounds = 3 if isinstance(server, BrokerProcess) else 1  # Kafka takes its time to start
    acknowledged: list[tuple[int, str]] = []
    sent: list[str] = []
    stop = threading.Event()

    with place.open() as store:

        def work(number: int) -> None:
            count = 0
            while not stop.is_set():
                command_id = f"{number}-{count}"
                sent.append(command_id)
                while (appended := _try(store, command_id)) is None:
                    pass
                acknowledged.append(appended)
                count += 1

        def crash() -> None:
            try:
                for _ in range(rounds):
                    before = len(acknowledged)
                    while len(acknowledged) < before + 50:
                        time.sleep(0.01)
                    server.kill()
                    server.start()
                before = len(acknowledged)
                while len(acknowledged) < before + 20:
                    time.sleep(0.01)
            finally:
                stop.set()

        together(9, lambda number: crash() if number == 8 else work(number))
        ids = check(place, "ann", acknowledged)
        commands = [event.command_id for event in store.read("ann")]
        assert len(ids) == len(acknowledged)
        assert sorted(command for command in commands if command) == sorted(sent)


def _try(store: EventStore, command_id: str) -> tuple[int, str] | None:
    try:
        appended = store.append("ann", NewEvent("Counted"), command_id=command_id)
    except EventError:
        return None
    return appended.version, appended.events[0].id
