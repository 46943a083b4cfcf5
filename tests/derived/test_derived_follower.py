"""A follower without a broker: what it refuses, what it sets aside, and how it goes on."""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.app.schema import parse
from headwater.client import Unreachable
from headwater.core.urls import KafkaUrl
from headwater.derived import follower as followers
from headwater.derived.cache_file import FileCache
from headwater.derived.change import Position
from headwater.derived.decode import Decoder, KeyText
from headwater.derived.errors import DerivedError
from headwater.derived.follower import Follower, Stream
from headwater.derived.reading import TopicReader, Unopened
from headwater.derived.rebuild import rebuild
from headwater.record.records import Record
from headwater.workers.worker import Pauses

BROKER = KafkaUrl.parse("kafka://127.0.0.1:1")
USERS = Stream("users", Decoder("flat", KeyText(["id"], parse("id bigint, name string"))))
DEAD = "shop.dead"


class Topic:
    """Stands for a topic and whoever reads it: two partitions, and tries that fail."""

    def __init__(self) -> None:
        self.partitions: dict[int, list[tuple[bytes, bytes | None]]] = {0: [], 1: []}
        self.topic_id = "id"
        self.failures: list[Exception] = []
        self.fetches = 0
        self.dead: list[Record] = []

    def bury(self, cluster: object, to: str, letters: Sequence[Record]) -> None:
        if self.failures:
            raise self.failures.pop()
        assert to == DEAD
        self.dead += letters

    def reader(self, cluster: object, topic: str, position: Position | None, *, store: str) -> Any:
        if self.failures:
            raise self.failures.pop()
        if position is not None and position.topic_id != self.topic_id:
            raise DerivedError("made again")
        offsets = dict.fromkeys(self.partitions, 0) | dict(position.offsets if position else {})
        reader = SimpleNamespace(topic_id=self.topic_id, offsets=offsets, committed={})
        reader.ends = lambda: {partition: len(records) for partition, records in self.partitions.items()}

        def fetch(wait_ms: int) -> Iterator[tuple[int, Record]]:
            self.fetches += 1
            for partition, records in self.partitions.items():
                for offset in range(reader.offsets[partition], len(records)):
                    reader.offsets[partition] = offset + 1
                    yield partition, Record(offset, 0, *records[offset])

        reader.fetch = fetch
        return reader


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Topic:
    topic = Topic()
    monkeypatch.setattr(followers, "TopicReader", topic.reader)
    monkeypatch.setattr(followers, "send_letters", topic.bury)
    return topic


@pytest.fixture
def store(tmp_path: Path) -> FileCache:
    return FileCache(tmp_path / "cache.db")


def drain(store: FileCache) -> tuple[Follower, list[str]]:
    said: list[str] = []
    follower = Follower(
        "c", USERS, store, BROKER, dead_letters=DEAD, say=said.append, pauses=Pauses(0.01, 0.02)
    )
    follower.run(until_end=True)
    return follower, said


def row(number: int, name: str) -> tuple[bytes, bytes]:
    return str(number).encode(), f'{{"id":{number},"name":"{name}"}}'.encode()


def test_it_goes_on_where_it_was(topic: Topic, store: FileCache) -> None:
    drain(store)
    assert store.position() == Position("users", "id", {0: 0, 1: 0})
    topic.partitions[0] += [row(1, "a"), row(2, "b"), row(1, "c")]
    topic.partitions[1] += [row(3, "d")]
    first, _ = drain(store)
    assert (first.progress.changes, first.progress.done, first.progress.total) == (3, 4, 4)
    topic.partitions[0] += [(b"2", None)]
    second, _ = drain(store)
    assert second.progress.changes == 1
    assert dict(store.rows()) == {"1": '{"id":1,"name":"c"}', "3": '{"id":3,"name":"d"}'}
    position = store.position()
    assert position is not None
    assert position.offsets == {0: 4, 1: 1}


def test_much_is_applied_in_pieces(topic: Topic, store: FileCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileCache, "gather_changes", 10)
    topic.partitions[0] += [row(n, "x") for n in range(95)]
    follower, _ = drain(store)
    assert follower.progress.commits == 10
    assert store.count() == 95


def test_what_cannot_be_read_becomes_a_dead_letter(topic: Topic, store: FileCache) -> None:
    topic.partitions[0] += [row(1, "a"), (b"1", b"broken"), (b"2", b"[]")] + [(b"", b"{}")] * 30
    follower, said = drain(store)
    assert said[0].startswith("users-0 at offset 1 cannot be read, and is in shop.dead: not JSON")
    assert (len(said), said[-1]) == (21, "12 more records cannot be read, and are in shop.dead")
    assert [each.key for each in topic.dead] == [f"users/0/{offset}".encode() for offset in range(1, 33)]
    first = json.loads(topic.dead[0].value or b"")
    assert first["reason"].startswith("c: not JSON")
    assert (first["topic"], first["partition"], first["offset"]) == ("users", 0, 1)
    assert base64.b64decode(first["value"]) == b"broken"
    assert follower.progress.unreadable == 32
    position = store.position()
    assert position is not None
    assert (position.unreadable, position.offsets[0], store.get("1")) == (32, 33, '{"id":1,"name":"a"}')


def test_the_store_waits_until_its_dead_letters_are_kept(topic: Topic, store: FileCache) -> None:
    topic.partitions[0] += [row(1, "a"), (b"1", b"broken")]
    positions: list[Position | None] = []

    def say(line: str) -> None:
        positions.append(store.position())
        topic.failures.append(Unreachable("no answer")) if len(positions) == 1 else None

    Follower("c", USERS, store, BROKER, dead_letters=DEAD, say=say, pauses=Pauses(0.01, 0.02)).run(
        until_end=True
    )
    assert positions[:2] == [None, None]  # named, then tried again
    assert [each.key for each in topic.dead] == [b"users/0/1"]
    assert store.count() == 1


def test_dead_letters_do_not_pile_up_in_memory(
    topic: Topic, store: FileCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followers, "_GATHER_BYTES", 1000)
    topic.partitions[0] += [(b"1", b"x" * 400)] * 10
    follower, _ = drain(store)
    assert follower.progress.commits == 5
    assert len(topic.dead) == 10


def test_a_batch_that_does_not_open_is_a_dead_letter_of_its_first_offset(
    topic: Topic, store: FileCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reader(*given: Any, **named: Any) -> Any:
        reader = topic.reader(*given, **named)
        reader.ends = lambda: {0: 8}

        def fetch(wait_ms: int) -> Iterator[tuple[int, Unopened]]:
            reader.offsets[0] = 8
            yield 0, Unopened(3, 7, "what codec is this")

        reader.fetch = fetch
        return reader

    monkeypatch.setattr(followers, "TopicReader", reader)
    drain(store)
    [dead] = topic.dead
    said = json.loads(dead.value or b"")
    assert (dead.key, said["value"]) == (b"users/0/3", None)
    assert said["reason"] == "c: a batch of records, up to offset 7, does not open: what codec is this"


def test_a_broker_that_is_away_is_waited_for(topic: Topic, store: FileCache) -> None:
    topic.partitions[0] += [row(1, "a")]
    topic.failures = [Unreachable("no answer"), Unreachable("no answer"), Unreachable("no answer")]
    follower, said = drain(store)
    assert said == [f"no answer; trying again in {pause} s" for pause in ("0.01", "0.02", "0.02")]
    assert (follower.progress.retries, store.count()) == (3, 1)


@pytest.mark.parametrize(
    ("position", "said"),
    [
        (Position("orders", "id"), "holds rows of orders, and not of users"),
        (Position("users", "id", shape="other"), "made with other columns"),
        (Position("users", "older"), "made again"),
    ],
)
def test_a_store_that_cannot_go_on(topic: Topic, store: FileCache, position: Position, said: str) -> None:
    store.apply({}, None, position)
    with pytest.raises(DerivedError, match=said):
        drain(store)
    rebuild("c", USERS, store, BROKER, dead_letters=DEAD)
    drain(store)
    assert store.position() == Position("users", "id", {0: 0, 1: 0})


def test_a_store_that_waits_to_be_built_anew_goes_on_by_itself(topic: Topic, store: FileCache) -> None:
    store.apply({}, None, Position("users", "older"))
    topic.partitions[0] += [row(1, "a")]
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        other = FileCache(store.path)
        rebuild("c", USERS, other, BROKER, dead_letters=DEAD)
        other.close()

    follower = Follower("c", USERS, store, BROKER, dead_letters=DEAD, say=say, pauses=Pauses(0.01, 0.02))
    follower.run(ready=follower.stop)
    assert said == ["made again; trying again in 0.02 s"]
    assert store.count() == 1


def test_a_store_that_was_emptied_is_filled_again(
    topic: Topic, store: FileCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followers, "_LOOK_SECONDS", 0.0)
    topic.partitions[0] += [row(1, "a")]
    follower = Follower("c", USERS, store, BROKER, dead_letters=DEAD)
    turns: list[int] = []

    def ready() -> None:
        turns.append(store.count())
        if len(turns) == 2:
            follower.stop()
        with sqlite3.connect(store.path) as other:
            other.execute("DELETE FROM rows")
            other.execute("DELETE FROM position")
        other.close()

    follower.run(ready=ready)
    assert turns == [1, 1]


def test_a_rebuild_catches_up_with_the_live_one(topic: Topic, store: FileCache) -> None:
    topic.partitions[0] += [row(1, "a")]
    drain(store)
    told: list[tuple[int, int]] = []
    switch = store.switch

    def late(beside: FileCache) -> None:
        if len(topic.partitions[0]) == 1:  # the live one moves on just before the switch
            topic.partitions[0].append(row(2, "b"))
            drain(store)
        switch(beside)

    store.switch = late  # type: ignore[method-assign]
    rows = rebuild(
        "c",
        USERS,
        store,
        BROKER,
        dead_letters=DEAD,
        progress=lambda progress: told.append((progress.done, progress.total)),
    )
    assert rows == store.count() == 2
    assert told[-1] == (1, 1)


class Cluster:
    """Stands for a cluster that has lost records."""

    def topic(self, name: str, *, fresh: bool = False) -> Any:
        return SimpleNamespace(topic_id="new", leaders={0: 1})

    def offsets(self, topic: str, at: dict[int, int]) -> dict[int, int]:
        return dict.fromkeys(at, 5)


def test_a_topic_that_was_made_again_is_refused() -> None:
    position = Position("users", "old", {0: 3})
    with pytest.raises(
        DerivedError, match="made again; build it anew with `headwater derived rebuild APP c`"
    ):
        TopicReader(Cluster(), "users", position, store="c")  # type: ignore[arg-type]
    assert TopicReader(Cluster(), "users", None, store="c").offsets == {0: 5}  # type: ignore[arg-type]
