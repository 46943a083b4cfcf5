"""The event store on Headwater and on Kafka: versions, conflicts, commands, time travel, the index."""

from __future__ import annotations

import json
import logging
import shutil
import time
from contextlib import closing
from datetime import UTC, datetime

import pytest

from headwater.client import LATEST, Cluster
from headwater.client.produce import produce
from headwater.client.transactions import TransactionalWriter
from headwater.core.urls import KafkaUrl
from headwater.events import (
    NO_STREAM,
    STREAM_EXISTS,
    BadEvent,
    EventError,
    NewEvent,
    Refused,
    StaleIndex,
    WriterFenced,
    WrongVersion,
)
from headwater.events.follow import ends
from headwater.events.index_file import discard
from headwater.events.store import index_path
from headwater.record.records import Record, encode_batch
from headwater.testing.clock import ManualClock

from .stores import Account, Place, deposited, eventually, together, versions

pytestmark = pytest.mark.real


def test_an_append_says_where_the_stream_is_and_a_conflict_too(place: Place) -> None:
    with place.open() as store:
        first = store.append(
            "ann", [deposited(1), deposited(2)], expected=NO_STREAM, metadata={"by": "teller"}
        )
        assert (first.stream, first.version, first.repeated) == ("ann", 2, False)
        assert [event.offset for event in first.events] == [0, 1]
        with pytest.raises(WrongVersion) as conflict:
            store.append("ann", deposited(), expected=1)
        assert conflict.value.actual == 2
        with pytest.raises(WrongVersion):
            store.append("bob", deposited(), expected=STREAM_EXISTS)
        assert store.append("ann", deposited(3), expected=2).version == 3
        assert (store.version("ann"), store.version("bob")) == (3, 0)
        assert [event.data["amount"] for event in store.read("ann", after=1)] == [2, 3]
        assert [event.metadata for event in store.read("ann")] == [{"by": "teller"}, {"by": "teller"}, {}]
        assert store.streams() == [("ann", 3)]
    with pytest.raises(EventError, match="is closed"):
        store.append("ann", deposited())


def test_a_command_becomes_events_or_a_refusal(place: Place) -> None:
    with place.open() as store:
        accounts = store.aggregates(Account)
        accounts.execute("ann", Account.deposit, 10)
        with pytest.raises(Refused, match="the balance of 10 does not cover 11"):
            accounts.execute("ann", Account.withdraw, 11)
        assert accounts.execute("ann", Account.withdraw, 4).version == 2
        assert accounts.state("ann").balance == 6
        assert accounts.state("ann", version=1).balance == 10
        assert accounts.state("nobody").balance == 0
        balances = [(event.type, state.balance) for event, state in accounts.history("ann")]
        assert balances == [("Deposited", 10), ("Withdrawn", 6)]
        with pytest.raises(ZeroDivisionError):
            accounts.execute("ann", lambda account: 1 // 0)
        assert accounts.execute("ann", Account.deposit, 1).version == 3


def test_a_repeated_command_gets_its_first_result_also_after_the_index_is_lost(place: Place) -> None:
    with place.open() as store:
        accounts = store.aggregates(Account)
        accounts.execute("ann", Account.deposit, 10)
        first = accounts.execute("ann", Account.deposit, 5, command_id="c1")
        again = accounts.execute("ann", Account.deposit, 5, command_id="c1")
        assert (again.version, again.events, again.repeated) == (2, first.events, True)
        store.append("ann", deposited(), command_id="c2", expected=2)
        assert store.append("ann", deposited(), command_id="c2", expected=2).version == 3
        assert (
            store.append("bob", deposited(), command_id="c2").repeated is False
        )  # an id belongs to its stream
    discard(index_path(place.directory, place.name))
    with place.open() as store:
        again = store.aggregates(Account).execute("ann", Account.deposit, 5, command_id="c1")
        assert (again.version, again.events, again.repeated) == (2, first.events, True)
        assert store.version("ann") == 3


def test_the_state_at_a_time(place: Place) -> None:
    clock = ManualClock()
    with place.open(clock=clock) as store:
        accounts = store.aggregates(Account)
        times = []
        for amount in (1, 2, 4):
            times.append(clock.wall_ms())
            accounts.execute("ann", Account.deposit, amount)
            clock.advance(1000)
        moments = [datetime.fromtimestamp(time_ms / 1000, UTC) for time_ms in times]
        assert [accounts.state("ann", at=moment).balance for moment in moments] == [1, 3, 7]
        assert [store.version("ann", at=moment) for moment in moments] == [1, 2, 3]
        assert accounts.state("ann", at=datetime.fromtimestamp(times[0] / 1000 - 1, UTC)).balance == 0
        assert [event.version for event in store.read("ann", at=moments[1])] == [1, 2]
        assert [event.time for event in store.read("ann")] == moments


def test_causes_and_conversations(place: Place) -> None:
    with place.open(partitions=3) as store:
        asked = store.append("order-1", NewEvent("Placed"), command_id="c1").events[0]
        assert (asked.causation_id, asked.correlation_id) == ("c1", "c1")
        paid = store.append("payment-9", NewEvent("Paid"), caused_by=asked).events[0]
        assert (paid.causation_id, paid.correlation_id) == (asked.id, "c1")
        store.append("order-2", NewEvent("Placed"), command_id="c2")
        assert [event.type for event in store.correlated("c1")] == ["Placed", "Paid"]


def test_snapshots_spare_the_folding_and_go_with_the_code(place: Place) -> None:
    with place.open() as store:
        accounts = store.aggregates(Account, snapshot_every=10)
        for _ in range(25):
            accounts.execute("ann", Account.deposit, 1)
    with place.open() as store:
        accounts = store.aggregates(Account, snapshot_every=10)
        Account.folded = 0
        assert accounts.state("ann").balance == 25
        assert Account.folded == 5
        Account.folded = 0
        assert accounts.state("ann", version=12).balance == 12
        assert Account.folded == 2
        Account.folded = 0
        assert store.aggregates(Account, snapshot_every=10, snapshot_version=2).state("ann").balance == 25
        assert Account.folded == 25


def test_fifty_writers_on_one_stream_lose_nothing_and_leave_no_gap(place: Place) -> None:
    with place.open() as store:
        accounts = store.aggregates(Account)
        accounts.execute("ann", Account.deposit, 1000)

        def expecting(number: int) -> None:
            version = store.version("ann")
            while True:
                try:
                    store.append("ann", NewEvent("Deposited", {"amount": 1, "by": number}), expected=version)
                    return
                except WrongVersion as conflict:
                    version = conflict.actual

        def commanding(number: int) -> None:
            for _ in range(4):
                accounts.execute("ann", Account.withdraw, 5)

        together(50, expecting)
        together(50, commanding)
        assert versions(store, "ann") == list(range(1, 252))
        by = [event.data["by"] for event in store.read("ann") if "by" in event.data]
        assert sorted(by) == list(range(50))
        assert accounts.state("ann").balance == 1000 + 50 - 50 * 4 * 5
        with pytest.raises(Refused):
            accounts.execute("ann", Account.withdraw, 51)


def test_a_stale_writer_is_shut_out_and_says_so(place: Place) -> None:
    with place.open() as old, place.open(directory=place.directory / "other") as new:
        old.append("ann", deposited(1))
        assert new.append("ann", deposited(2)).version == 2
        for _ in range(2):
            with pytest.raises(WriterFenced, match=f"another process writes partition 0 of {place.name} now"):
                old.append("ann", deposited(4))
        assert [event.data["amount"] for event in old.read("ann")] == [1, 2]
        old.claim()
        assert old.append("ann", deposited(8), expected=2).version == 3
        with pytest.raises(WriterFenced):
            new.append("ann", deposited(16))
        assert [event.data["amount"] for event in new.read("ann")] == [1, 2, 8]


def test_records_of_other_producers_are_left_out_and_counted(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    forged = {
        "id": "x",
        "stream": "ann",
        "version": 2,
        "type": "A",
        "schema": 1,
        "time": "2026-01-01",
        "data": {},
    }
    with place.open() as store, closing(Cluster(KafkaUrl.parse(place.broker), "foreign")) as cluster:
        store.append("ann", deposited(1))
        records = [b"\x00\xff", None, b"[]", b'{"version": 1}', json.dumps(forged).encode()]
        produce(cluster, place.name, [Record(0, 0, b"ann", value) for value in records])
        writer = TransactionalWriter(cluster, f"foreign-{place.name}")
        writer.begin(place.name, [0])
        writer.produce(place.name, {0: encode_batch([Record(0, 0, b"ann", b"noise")])})
        writer.commit()
        # Kafka answers before the markers of a transaction are written, and shows its records only then.
        eventually(lambda: cluster.offsets(place.name, {0: LATEST}) == ends(cluster, place.name, [0]))
        with caplog.at_level(logging.WARNING, "headwater.events"):
            assert store.append("ann", deposited(2), expected=1).version == 2
        assert store.skipped == 6
        assert "6 records of partition 0 are no events of the store" in caplog.text
        assert "it came outside of a transaction" in caplog.text
        assert versions(store, "ann") == [1, 2]
    discard(index_path(place.directory, place.name))
    with place.open() as store:
        assert (versions(store, "ann"), store.skipped) == ([1, 2], 6)


def test_an_append_larger_than_a_batch_is_whole_and_a_too_large_event_harms_nobody(place: Place) -> None:
    with closing(Cluster(KafkaUrl.parse(place.broker), "test")) as cluster:
        settings = {"max.message.bytes": "5000", "retention.ms": "-1", "retention.bytes": "-1"}
        cluster.ensure_topic(place.name, 1, settings)
    with place.open() as store:
        store.append("ann", [NewEvent("Noted", {"text": "x" * 300})] * 60)
        futures = [
            store.submit(name, NewEvent("Noted", {"text": "x" * size}))
            for name, size in (("ann", 10), ("bob", 6000), ("eve", 20))
        ]
        assert futures[0].result(20).version == 61
        with pytest.raises(
            BadEvent, match=r"Noted of bob takes .* bytes, and the topic's max.message.bytes is 5000"
        ):
            futures[1].result(20)
        assert futures[2].result(20).version == 1
        assert versions(store, "ann") == list(range(1, 62))


def test_an_index_is_caught_up_on_start_and_refused_where_it_does_not_fit(place: Place) -> None:
    copy = place.directory / "copy"
    with place.open() as store:
        store.append("ann", deposited())
        with pytest.raises(StaleIndex, match="in use by another process"):
            discard(index_path(place.directory, place.name))
    shutil.copytree(place.directory, copy)
    with place.open() as store:
        store.append("ann", deposited())
    with place.open(directory=copy) as store:
        assert versions(store, "ann") == [1, 2]
    with pytest.raises(EventError, match="has 1 partitions, not 2"):
        place.open(partitions=2)
    other = Place(place.broker, f"{place.name}-other", place.directory)
    shutil.copy(index_path(place.directory, place.name), index_path(place.directory, other.name))
    with pytest.raises(StaleIndex, match="is of another topic"):
        other.open()
    index_path(place.directory, other.name).write_bytes(b"no database" * 100)
    with pytest.raises(StaleIndex, match="does not read"):
        other.open()


def test_a_topic_that_forgets_is_refused(place: Place) -> None:
    with closing(Cluster(KafkaUrl.parse(place.broker), "test")) as cluster:
        cluster.ensure_topic(place.name, 1, {"retention.ms": "60000"})
    with pytest.raises(EventError, match=r"has retention\.ms=60000 and would forget events"):
        place.open()


def test_callers_wait_where_too_many_appends_do(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.events.writer._MOST_WAITING", 5)
    with place.open() as store:
        futures = [store.submit("ann", deposited()) for _ in range(40)]
        assert sum(not future.done() for future in futures[:-5]) <= 5
    assert [future.result(0).version for future in futures] == list(range(1, 41))  # closing finishes them


def test_an_open_transaction_of_another_producer_is_waited_for(place: Place) -> None:
    with place.open() as store, closing(Cluster(KafkaUrl.parse(place.broker), "foreign")) as cluster:
        writer = TransactionalWriter(cluster, f"open-{place.name}")
        writer.begin(place.name, [0])
        writer.produce(place.name, {0: encode_batch([Record(0, 0, b"ann", b"noise")])})
        future = store.submit("ann", deposited())
        time.sleep(0.5)
        assert not future.done()  # what lies behind the open transaction cannot be known yet
        writer.abort()
        assert future.result(20).version == 1
