"""Personal data, sealed and erased: on Headwater and on Kafka, in every process, and on the disks."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from headwater.cli import main
from headwater.client import Cluster
from headwater.client.produce import produce
from headwater.core.urls import KafkaUrl
from headwater.events import Event, EventStore, NewEvent
from headwater.events.fold import Fold
from headwater.events.index import Index
from headwater.events.index_file import _SCHEMAS, discard
from headwater.events.keys import Keys, _record
from headwater.events.store import index_path
from headwater.testing.clock import ManualClock
from headwater.testing.process import BrokerProcess

from .stores import Place, eventually

real = pytest.mark.real

NAME = "Annabella Example"
HOUR_MS = 3_600_000


class Person:
    """A state that holds what is personal."""

    def __init__(self) -> None:
        self.names: list[str | None] = []

    def apply(self, event: Event) -> None:
        self.names.append(event.data["name"])


def named(name: str, subject: str | None = None) -> NewEvent:
    return NewEvent("Named", {"name": name, "open": True}, personal=["name"], subject=subject)


def names(store: EventStore, stream: str) -> list[str | None]:
    return [event.data["name"] for event in store.read(stream)]


def contents(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())


def second(place: Place, name: str = "second") -> Place:
    """The same store as another process has it."""
    return Place(place.broker, place.name, place.directory / name)


@real
def test_what_is_erased_is_gone_for_everybody_and_nothing_else_is(place: Place) -> None:
    with place.open() as store, second(place).open() as other:
        store.append("1", [named(NAME), named("a friend", subject="2")])
        store.append("2", named("Bob"))
        eventually(lambda: names(other, "1") == [NAME, "a friend"])
        assert store.erase("1") == 1
        assert store.erase("1") == 0
        [first, last] = store.read("1")
        assert (first.data, first.personal, first.erased) == ({"name": None, "open": True}, ("name",), True)
        assert (last.data, last.erased) == ({"name": "a friend", "open": True}, False)
        eventually(lambda: names(other, "1") == [None, "a friend"])
        assert (names(store, "2"), names(other, "2")) == (["Bob"], ["Bob"])
        assert other.erase("2") == 2
        eventually(lambda: names(store, "2") == [None] and names(store, "1") == [None, None])
    discard(index_path(place.directory, place.name))
    with place.open() as store:
        assert (names(store, "1"), names(store, "2")) == ([None, None], [None])


@real
def test_states_and_snapshots_forget_as_well(place: Place) -> None:
    with place.open() as store, second(place).open() as other:
        people = store.aggregates(Person, snapshot_every=1)
        for name in (NAME, "Bob"):
            people.execute("1", lambda person, name=name: named(name))
        assert people.state("1").names == [NAME, "Bob"]
        assert NAME.encode() in contents(place.directory), "in a snapshot"
        other.erase("1")
        eventually(lambda: people.state("1").names == [None, None])
        seen: list[list[str | None]] = []
        people.execute("1", lambda person: seen.append(list(person.names)))
        assert seen == [[None, None]]
    assert NAME.encode() not in contents(place.directory)


@pytest.fixture(scope="module")
def tidy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that looks all the time for what it may forget."""
    with BrokerProcess(tmp_path_factory.mktemp("tidy"), settings={"log.cleaner.backoff.ms": "100"}) as broker:
        yield broker


@real
def test_nothing_of_it_stays_in_a_topic_nor_in_an_index(tidy: BrokerProcess, tmp_path: Path) -> None:
    place = Place(f"kafka://{tidy.bootstrap}", "people", tmp_path / "index")
    with place.open() as store:
        store.append("1", named(NAME))
        [key] = keys(place)
        assert key in contents(tmp_path / "index")
        hasten(tidy, "people.keys")
        assert CliRunner().invoke(main, erasing(place, tmp_path / "another")).exit_code == 0
        assert key not in contents(tmp_path / "another")
        eventually(lambda: names(store, "1") == [None])
    assert key not in contents(tmp_path / "index")
    eventually(lambda: b'"subject"' not in segments(tidy, "people.keys"))
    assert NAME.encode() not in contents(tmp_path) + contents(tidy.data)


@real
def test_keys_of_which_none_is_left_do_not_hold_up_a_store(tidy: BrokerProcess, tmp_path: Path) -> None:
    place = Place(f"kafka://{tidy.bootstrap}", "empty", tmp_path)
    with place.open() as store:
        store.append("1", named(NAME))
        hasten(tidy, "empty.keys", **{"delete.retention.ms": "0"})
        [event] = store.read("1")
        assert event.key_id is not None
        key_id = event.key_id.encode()
        assert key_id in segments(tidy, "empty.keys")
        assert store.erase("1") == 1
    eventually(lambda: key_id not in segments(tidy, "empty.keys"))
    with second(place).open() as store:
        assert names(store, "1") == [None]
        store.append("1", named("Ann again"))
        assert names(store, "1") == [None, "Ann again"]


def erasing(place: Place, directory: Path) -> list[str]:
    return ["events", "erase", place.name, "1", "--yes", "--broker", place.broker, "--data", str(directory)]


def keys(place: Place) -> list[bytes]:
    with closing(sqlite3.connect(index_path(place.directory, place.name))) as connection:
        return [secret for (secret,) in connection.execute("SELECT secret FROM keys")]


def segments(broker: BrokerProcess, topic: str) -> bytes:
    return b"".join(path.read_bytes() for path in (broker.data / "topics").glob(f"{topic}.*/0/*.log"))


def hasten(broker: BrokerProcess, topic: str, **more: str) -> None:
    """Have done at once what a broker does with a topic of keys within an hour."""
    wanted = {"max.compaction.lag.ms": "100", "segment.ms": "100"} | more
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in wanted.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    [future] = admin.incremental_alter_configs([resource]).values()
    future.result(20)


@real
def test_who_comes_back_has_a_new_key_wherever_the_erasure_was(place: Place) -> None:
    with place.open() as store, second(place).open() as other:
        store.append("1", named(NAME))
        eventually(lambda: names(other, "1") == [NAME])
        assert other.erase("1") == 1
        store.append("1", named("Ann again"))  # at once, before this process has noticed anything by itself
        assert names(store, "1") == [None, "Ann again"]
        eventually(lambda: names(other, "1") == [None, "Ann again"])


@real
def test_two_keys_of_one_subject_are_erased_together(place: Place) -> None:
    with place.open() as store:
        store.append("1", named(NAME))
        with closing(Cluster(KafkaUrl.parse(place.broker))) as cluster:
            made = store._keys._made(cluster, {"1"})
            produce(cluster, store._keys.topic, [_record("1", 0) for _ in range(20)])
            store._keys.follow(cluster, at_once=True)
            assert len(store._keys._of("1")) == 21
            assert made["1"] in store._keys._of("1")
        store.append("1", named("another"))
        assert names(store, "1") == [NAME, "another"]
        assert store.erase("1") == 2
        assert names(store, "1") == [None, None]


@real
def test_an_index_that_was_away_while_an_erasure_was_forgotten_forgets_too(place: Place) -> None:
    clock = ManualClock()
    with place.open(clock=clock) as store:
        store.append("1", [named(NAME), named("a friend", subject="2")])
        with second(place).open() as other:
            other.erase("1")
    # As if the tombstone had vanished before this index came back: it is behind the place that it was at.
    path = index_path(place.directory, place.name)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE key_position SET next_offset = next_offset + 1")
    with place.open(clock=clock) as store:
        assert names(store, "1") == [NAME, "a friend"]
    clock.advance(13 * HOUR_MS)
    with place.open(clock=clock) as store:
        assert names(store, "1") == [None, "a friend"]


@real
def test_an_erasure_that_another_process_has_read_is_not_undone(place: Place, monkeypatch: Any) -> None:
    """Both follow with one file, and one of them is behind when it takes in what it has fetched."""
    reads = Keys._read
    with second(place, "elsewhere").open() as elsewhere:
        elsewhere.append("1", named(NAME))

        def slowly(keys: Keys, *arguments: Any) -> Iterator[Any]:
            found = list(reads(keys, *arguments))
            monkeypatch.setattr(Keys, "_read", reads)
            elsewhere.erase("1")
            with place.open() as quick:
                assert names(quick, "1") == [None]
            yield from found

        monkeypatch.setattr(Keys, "_read", slowly)
        with place.open() as slow:
            assert names(slow, "1") == [None]
    with place.open() as store:
        assert names(store, "1") == [None]


@real
def test_a_pass_that_was_cut_off_leaves_no_key_behind(place: Place, monkeypatch: Any) -> None:
    clock = ManualClock()
    with place.open(clock=clock) as store:
        store.append("1", [named(NAME), named("a friend", subject="2")])
    clock.advance(13 * HOUR_MS)
    finish = Keys._advance

    def cut_off(keys: Keys, *arguments: Any, whole: bool = False) -> bool:
        if whole:
            raise KeyboardInterrupt
        return finish(keys, *arguments)

    monkeypatch.setattr(Keys, "_advance", cut_off)
    with pytest.raises(KeyboardInterrupt), place.open(clock=clock) as store:
        names(store, "1")
    monkeypatch.setattr(Keys, "_advance", finish)
    # As if that pass had read a key of which nothing is left in the topic by now.
    path = index_path(place.directory, place.name)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO keys SELECT 'gone', '1', secret, pass FROM keys WHERE subject = '1'")
    clock.advance(13 * HOUR_MS)
    with place.open(clock=clock) as store:
        assert names(store, "1") == [NAME, "a friend"]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM keys WHERE id = 'gone'").fetchone() == (0,)


def test_a_state_from_before_an_erasure_makes_no_snapshot_after_it(tmp_path: Path) -> None:
    fold = Fold(Person, snapshot_every=1)
    with closing(Index(tmp_path / "index.db", "people", "id", 1)) as index:
        state = index.state(fold, "1")._replace(version=1)
        with index.file.writing() as connection:
            connection.execute("UPDATE erasures SET count = count + 1")
        assert index.snapshot(fold, "1", state).snapshot == 0
        fresh = index.state(fold, "1")._replace(version=1)
        assert index.snapshot(fold, "1", fresh).snapshot == 1


def test_an_index_from_before_there_were_keys_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(_SCHEMAS[0] + "PRAGMA user_version = 1;")
        connection.execute("INSERT INTO topic VALUES ('people', 'id', 1)")
        connection.execute("INSERT INTO positions VALUES (0, 1, 0)")
        value = '{"id": "e", "stream": "1", "version": 1, "type": "T", "schema": 1, "time": "2026-01-01", "data": {}}'
        connection.execute("INSERT INTO events VALUES (0, 0, '1', 1, 0, NULL, NULL, ?)", (value.encode(),))
    with closing(Index(path, "people", "id", 1)) as index:
        assert [event.id for event in index.events("1")] == ["e"]
        assert not index.has_personal()
