"""A source without Spark: the driver plans, tasks read, against a broker."""

from __future__ import annotations

import io
import itertools
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from headwater.client import LATEST, Cluster
from headwater.client.produce import produce
from headwater.core.urls import KafkaUrl
from headwater.pipeline.source.admission import ASSUMED_BYTES
from headwater.pipeline.source.avro_values import avro_schema
from headwater.pipeline.source.driver import WAIT_MS, SourceDriver
from headwater.pipeline.source.errors import RecordsLost, SourceError, TopicChanged
from headwater.pipeline.source.offsets import SourceOffset
from headwater.pipeline.source.ranges import RangeReader
from headwater.pipeline.source.reading import hang_up, read_task
from headwater.pipeline.source.spec import TopicSource
from headwater.pipeline.source.tasks import Task
from headwater.record.records import Record
from headwater.testing.clock import ManualClock
from headwater.testing.process import BrokerProcess

pytestmark = pytest.mark.real
_serial = itertools.count(1)

SCHEMA = pa.schema([("id", pa.int32()), ("at", pa.timestamp("us", "UTC"))])
HIDDEN = [("_wm", pa.timestamp("us", "UTC")), ("_marker", pa.bool_())]
KEYS = {0: b"0", 1: b"1"}
"""A key of each of two partitions."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("source") / "data") as running:
        yield running


@pytest.fixture
def topics(broker: BrokerProcess) -> Iterator[Callable[..., Topic]]:
    """Makes topics, and hangs up on the broker afterwards."""
    made: list[Topic] = []

    def make(**declared: Any) -> Topic:
        made.append(Topic(broker, **declared))
        return made[-1]

    yield make
    for topic in made:
        topic.close()
    hang_up()


class Topic:
    """A topic with a source of it, and a driver whose clock stands still."""

    def __init__(self, broker: BrokerProcess, **declared: Any) -> None:
        self.name = f"topic-{os.getpid()}-{next(_serial)}"
        url = f"kafka://{broker.bootstrap}"
        self.bootstrap = broker.bootstrap
        self.cluster = Cluster(KafkaUrl.parse(url))
        self.cluster.ensure_topic(self.name, 2)
        declared = {"schema": "id int, at timestamp", "dead_letters": f"{self.name}.dead", **declared}
        self.source = TopicSource(url, self.name, **declared)
        self.clock = ManualClock(0)
        self.driver = SourceDriver(self.source, clock=self.clock)
        self.rows: list[dict[str, Any]] = []

    def declare(self, **changes: Any) -> None:
        """Start over with another declaration, as after a restart."""
        self.driver.close()
        self.source = replace(self.source, **changes)
        self.driver = SourceDriver(self.source, clock=self.clock)

    def close(self) -> None:
        self.driver.close()
        self.cluster.close()

    def put(self, partition: int, *values: Any, written_ms: int = 1000) -> None:
        made = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
        records = [Record(0, written_ms, KEYS[partition], value) for value in made]
        produce(self.cluster, self.name, records)

    def schema(self) -> pa.Schema:
        kinds = {"_key": pa.binary(), "_partition": pa.int32(), "_offset": pa.int64()}
        beside = [(name, kinds[name]) for name in self.source.metadata]
        beside += CHANGES if self.source.envelope else []
        return pa.schema([*SCHEMA, *beside, *(HIDDEN if self.source.event_time else [])])

    def step(self, start: SourceOffset, *, max_rows: int | None = None) -> SourceOffset:
        """Run one batch, and return its end."""
        end = self.driver.latest(start, max_rows, None)
        self.rows = []
        if end != start:
            for task in self.driver.tasks(start, end):
                self.rows += self.read(task)
        return end

    def read(self, task: Task) -> list[dict[str, Any]]:
        batches = list(read_task(self.source, self.schema(), task))
        return [row for batch in batches for row in batch.to_pylist()]

    def ids(self) -> list[int]:
        return [row["id"] for row in self.rows if not row.get("_marker")]


def at(second: int) -> str:
    return f"2024-01-01T00:{second // 60:02}:{second % 60:02}Z"


def seconds(ms: int | None) -> float | None:
    return None if ms is None else (ms - 1704067200_000) / 1000


def test_rows_come_once_with_what_was_asked_for(topics: Callable[..., Topic]) -> None:
    topic = topics(metadata=("_key", "_partition", "_offset"))
    start = topic.driver.initial()
    topic.put(0, {"id": 1}, {"id": 2, "other": "x"})
    topic.put(1, {"id": 3})
    end = topic.step(start)
    assert sorted(topic.rows, key=lambda row: row["id"]) == [
        {"id": 1, "at": None, "_key": b"0", "_partition": 0, "_offset": 0},
        {"id": 2, "at": None, "_key": b"0", "_partition": 0, "_offset": 1},
        {"id": 3, "at": None, "_key": b"1", "_partition": 1, "_offset": 0},
    ]
    assert end.offsets == {0: 2, 1: 1}
    assert topic.step(end) is end


def test_a_batch_is_bounded(topics: Callable[..., Topic]) -> None:
    topic = topics()
    topic.put(0, *({"id": i} for i in range(10)))
    end = topic.step(topic.driver.initial(), max_rows=4)
    assert topic.ids() == [0, 1, 2, 3]
    end = topic.step(end, max_rows=4)
    assert topic.ids() == [4, 5, 6, 7]
    topic.driver.stop_at_now()
    topic.put(0, {"id": 10})
    end = topic.step(end)
    assert topic.ids() == [8, 9]
    assert topic.step(end) is end


def test_the_first_batch_is_bounded_in_bytes_by_a_guess(topics: Callable[..., Topic]) -> None:
    topic = topics()
    topic.put(0, *({"id": i} for i in range(100)))
    first = topic.driver.latest(topic.driver.initial(), None, 10 * ASSUMED_BYTES)
    assert first.offsets[0] == 10
    for task in topic.driver.tasks(topic.driver.initial(), first):
        topic.read(task)
    # Now the size is known, though the ten came in one batch with the others: the rest is below the limit.
    assert topic.driver.latest(first, None, 10 * ASSUMED_BYTES).offsets[0] == 100


def test_until_now_is_until_the_start(topics: Callable[..., Topic]) -> None:
    topic = topics(until_now=True)
    topic.put(0, {"id": 1}, {"id": 2})
    end = topic.step(topic.driver.initial(), max_rows=1)
    topic.put(0, {"id": 3})
    end = topic.step(end)
    assert topic.ids() == [2]
    assert topic.step(end) is end
    topic.declare()
    topic.step(end)
    assert topic.ids() == [3]


def test_malformed_records_become_dead_letters_with_their_origin(topics: Callable[..., Topic]) -> None:
    topic = topics()
    topic.put(0, {"id": 1}, b"nonsense", {"id": "x"}, {"id": 2})
    topic.step(topic.driver.initial())
    assert topic.ids() == [1, 2]
    dead = TopicSource(topic.source.broker, f"{topic.name}.dead", "key binary, value binary", format="raw")
    raw = pa.schema([("key", pa.binary()), ("value", pa.binary())])
    driver = SourceDriver(dead)
    end = driver.latest(driver.initial(), None, None)
    [task] = driver.tasks(driver.initial(), end)
    letters = {
        row["key"].decode(): json.loads(row["value"])
        for batch in read_task(dead, raw, task)
        for row in batch.to_pylist()
    }
    driver.close()
    assert letters.keys() == {f"{topic.name}/0/1", f"{topic.name}/0/2"}
    first = letters[f"{topic.name}/0/1"]
    assert (first["topic"], first["partition"], first["offset"], first["value"]) == (
        topic.name, 0, 1, "bm9uc2Vuc2U=",
    )  # fmt: skip
    assert first["reason"].startswith("not JSON")


def test_without_a_topic_for_them_malformed_records_end_the_query(topics: Callable[..., Topic]) -> None:
    topic = topics(dead_letters=None)
    topic.put(0, b"nonsense")
    with pytest.raises(SourceError, match=r"-0: the record at offset 0 is malformed \(not JSON"):
        topic.step(topic.driver.initial())


def test_time_is_that_of_the_partition_behind_until_it_is_idle(topics: Callable[..., Topic]) -> None:
    topic = topics(event_time="at", lateness_ms=5_000, idle_ms=60_000)
    topic.put(0, {"id": 1, "at": at(100)})
    topic.put(1, {"id": 2, "at": at(20)})
    end = topic.step(topic.driver.initial())
    assert end.watermark is None
    end = topic.step(end)
    assert seconds(end.watermark) == 15
    assert [row["_marker"] for row in topic.rows] == [True]
    assert topic.rows[0]["_wm"].timestamp() * 1000 == end.watermark
    topic.put(0, {"id": 3, "at": at(200)})
    end = topic.step(topic.step(end))
    assert seconds(end.watermark) == 15
    topic.clock.advance(30_000)
    topic.put(0, {"id": 4, "at": at(210)})
    end = topic.step(topic.step(end))
    assert seconds(end.watermark) == 15
    topic.clock.advance(30_000)
    end = topic.step(end)
    assert seconds(end.watermark) == 205
    topic.clock.advance(60_000)
    assert topic.step(end) is end  # all are idle: time stands still


def test_a_clock_that_is_far_ahead_does_not_move_time(topics: Callable[..., Topic]) -> None:
    topic = topics(event_time="at", ahead_ms=3_600_000)  # records are of 1970-01-01T00:00:01Z
    topic.put(0, {"id": 1, "at": "1970-01-01T00:10:00Z"}, {"id": 2, "at": at(0)}, {"id": 3})
    topic.put(1, {"id": 4, "at": "1970-01-01T01:00:01Z"}, {"id": 5, "at": "1970-01-01T01:00:01.000001Z"})
    end = topic.step(topic.driver.initial())
    assert sorted(topic.ids()) == [1, 3, 4]
    assert topic.step(end).watermark == 600_000
    topic.put(0, {"id": 6, "at": at(0)}, {"id": 7, "at": "1970-01-01T00:09:59Z"}, {"id": 8, "at": at(1)})
    end = topic.step(topic.step(end))
    assert (topic.ids(), end.watermark) == ([], 600_000)


def test_time_begins_in_1970(topics: Callable[..., Topic]) -> None:
    topic = topics(event_time="at", late="aside", late_topic="before-1970")
    topic.put(0, {"id": 1, "at": "1969-12-31T23:59:59.999999Z"}, {"id": 2, "at": "1970-01-01T00:00:00Z"})
    topic.step(topic.driver.initial())
    assert topic.ids() == [2]
    assert sum(topic.cluster.offsets("before-1970", {0: LATEST}).values()) == 1


def test_a_partition_that_never_had_a_record_does_not_stop_time(topics: Callable[..., Topic]) -> None:
    topic = topics(event_time="at", idle_ms=60_000)
    topic.put(0, {"id": 1, "at": at(100)})
    end = topic.step(topic.step(topic.driver.initial()))
    assert end.watermark is None
    topic.clock.advance(60_000)  # both fall idle at once
    end = topic.step(end)
    assert seconds(end.watermark) == 100
    assert topic.step(end) is end


def test_read_up_to_now_a_partition_that_never_had_a_record_does_not_stop_time(
    topics: Callable[..., Topic],
) -> None:
    topic = topics(event_time="at", until_now=True)
    topic.put(0, {"id": 1, "at": at(100)})
    end = topic.step(topic.step(topic.driver.initial()))
    assert seconds(end.watermark) == 100
    assert topic.step(end) is end


def test_read_up_to_now_a_partition_is_idle_by_what_was_written_after_it(
    topics: Callable[..., Topic],
) -> None:
    topic = topics(event_time="at", idle_ms=60_000, until_now=True)
    topic.clock.jump(10**9)  # long after, by this machine's clock
    topic.put(0, {"id": 1, "at": at(100)}, written_ms=1000)
    topic.put(1, {"id": 2, "at": at(200)}, written_ms=60_999)
    end = topic.step(topic.step(topic.driver.initial()))
    assert seconds(end.watermark) == 100
    topic.put(1, {"id": 3, "at": at(300)}, written_ms=61_000)
    topic.declare()  # the next run
    end = topic.step(end)
    assert (topic.ids(), seconds(topic.step(end).watermark)) == ([3], 300)


def test_read_up_to_now_a_quiet_topic_follows_the_one_that_had_records_last(
    topics: Callable[..., Topic], tmp_path: Path
) -> None:
    orders, payments = topics(event_time="at"), topics(event_time="at", idle_ms=60_000)
    for topic in (orders, payments):
        topic.declare(meeting=str(tmp_path), watch=(orders.name, payments.name), until_now=True)
        topic.clock.jump(10**9)
    for partition in KEYS:
        orders.put(partition, {"id": 1, "at": at(1000)}, written_ms=100_000)
        payments.put(partition, {"id": 1, "at": at(10)}, written_ms=40_000)
    ahead = orders.step(orders.step(orders.driver.initial()))
    behind = payments.step(payments.step(payments.driver.initial()))
    assert (seconds(ahead.watermark), seconds(behind.watermark)) == (1000, 1000)


def test_after_a_restart_the_time_is_told_once(topics: Callable[..., Topic]) -> None:
    topic = topics(event_time="at")
    topic.put(0, {"id": 1, "at": at(100)})
    topic.put(1, {"id": 2, "at": at(200)})
    end = topic.step(topic.step(topic.driver.initial()))
    assert topic.step(end) is end
    topic.declare()
    told = topic.step(end)
    assert [(row["_marker"], row["_wm"].timestamp() * 1000) for row in topic.rows] == [(True, end.watermark)]
    assert (told.offsets, told.watermark) == (end.offsets, end.watermark)
    assert topic.driver.latest(end, None, None) == told  # asked again, it says the same
    assert topic.step(told) is told


def test_a_quiet_topic_follows_the_others_of_its_query(topics: Callable[..., Topic], tmp_path: Path) -> None:
    orders, payments = topics(event_time="at"), topics(event_time="at", late="drop", idle_ms=60_000)
    for topic in (orders, payments):
        topic.declare(meeting=str(tmp_path), watch=(orders.name, payments.name))
    orders.put(0, {"id": 1, "at": at(1000)})
    orders.put(1, {"id": 2, "at": at(900)})
    ahead = orders.step(orders.step(orders.driver.initial()))
    assert seconds(ahead.watermark) == 900
    quiet = payments.step(payments.driver.initial())
    payments.clock.advance(59_999)
    assert payments.step(quiet).watermark is None
    payments.clock.advance(1)
    quiet = payments.step(quiet)
    assert quiet.watermark == ahead.watermark
    assert [row["_marker"] for row in payments.rows] == [True]
    payments.put(0, {"id": 3, "at": at(899)}, {"id": 4, "at": at(901)})
    end = payments.step(quiet)
    assert (payments.ids(), end.watermark) == ([4], quiet.watermark)


def test_topics_that_are_all_quiet_stand_still(topics: Callable[..., Topic], tmp_path: Path) -> None:
    orders, payments = topics(event_time="at"), topics(event_time="at")
    for topic in (orders, payments):
        topic.declare(meeting=str(tmp_path), watch=(orders.name, payments.name))
    orders.put(0, {"id": 1, "at": at(1000)})
    ahead = orders.step(orders.step(orders.driver.initial()))
    quiet = payments.step(payments.driver.initial())
    for topic in (orders, payments):
        topic.clock.advance(60_000)
    ahead = orders.step(ahead)
    assert seconds(ahead.watermark) == 1000
    assert payments.step(quiet).watermark is None


CHANGES = [("_deleted", pa.bool_()), ("_changed_at", pa.timestamp("us", "UTC")), ("_version", pa.int64())]


def test_a_table_lags_no_further_behind_than_it_is_waited_for(
    topics: Callable[..., Topic], tmp_path: Path
) -> None:
    orders = topics(event_time="at")
    table: dict[str, Any] = {
        "event_time": "_changed_at",
        "envelope": "flat",
        "key": ("id",),
        "valid_from": "at",
    }
    users = topics(**table)
    for topic in (orders, users):
        topic.declare(meeting=str(tmp_path), watch=(orders.name, users.name))
    users.declare(wait_ms=100_000, leaders=(orders.name,))
    for partition in KEYS:
        orders.put(partition, {"id": 1, "at": at(1000)})
        users.put(partition, {"id": 1, "at": at(100)})
    first = users.step(users.driver.initial())
    times = [row["_changed_at"].timestamp() * 1000 for row in users.rows if not row["_marker"]]
    assert [seconds(int(time)) for time in times] == [100, 100]
    assert seconds(users.step(first).watermark) == 100  # nobody has said what time it is
    ahead = orders.step(orders.step(orders.driver.initial()))
    assert seconds(ahead.watermark) == 1000
    behind = users.step(first)
    assert seconds(behind.watermark) == 900
    users.put(0, {"id": 2, "at": at(850)})
    end = users.step(behind)
    assert [row["id"] for row in users.rows if not row["_marker"]] == [2]  # a change is never late
    assert end.watermark == behind.watermark


def test_a_table_that_is_read_up_to_now_holds_nothing_back(
    topics: Callable[..., Topic], tmp_path: Path
) -> None:
    orders = topics(event_time="at")
    users = topics(event_time="_changed_at", envelope="flat", key=("id",))
    for topic in (orders, users):
        topic.declare(meeting=str(tmp_path), watch=(orders.name, users.name), until_now=True)
    for partition in KEYS:
        orders.put(partition, {"id": 1, "at": at(1000)})
        users.put(partition, {"id": 1}, {"id": 2})
    ahead = orders.step(orders.step(orders.driver.initial()))
    some = users.step(users.driver.initial(), max_rows=2)
    assert users.driver.latest(some, 1, None).watermark != ahead.watermark
    end = users.step(users.step(some))
    assert end.watermark == ahead.watermark


def test_a_replayed_batch_sees_the_same_time(topics: Callable[..., Topic]) -> None:
    topic = topics(event_time="at")
    topic.put(1, {"id": 0, "at": at(300)})
    topic.put(0, {"id": 1, "at": at(100)})
    end = topic.step(topic.step(topic.driver.initial()))
    topic.put(0, {"id": 2, "at": at(200)}, {"id": 3, "at": at(50)})
    last = topic.step(end)
    rows = topic.rows
    again = SourceDriver(topic.source)
    replayed = [
        row
        for task in again.tasks(SourceOffset.parse(end.dump()), SourceOffset.parse(last.dump()))
        for row in topic.read(task)
    ]
    assert replayed == rows
    assert topic.ids() == [2]  # 3 is late
    again.close()


@pytest.mark.parametrize(("late", "kept"), [("drop", [4]), ("aside", [4]), ("correct", [3, 4])])
def test_late_events_go_where_they_are_declared_to(
    topics: Callable[..., Topic], late: str, kept: list[int]
) -> None:
    topic = topics(event_time="at", late=late, corrections_ms=30_000, late_topic="late")
    topic.declare(late_topic=f"{topic.name}.late")
    topic.put(1, {"id": 0, "at": at(300)})
    topic.put(0, {"id": 1, "at": at(100)})
    end = topic.step(topic.step(topic.driver.initial()))
    assert seconds(end.watermark) == 100
    topic.put(0, {"id": 2, "at": at(69)}, {"id": 3, "at": at(70)}, {"id": 4, "at": at(100)})
    topic.step(end)
    assert topic.ids() == kept
    stamp = topic.rows[0]["_wm"].timestamp() * 1000
    assert seconds(stamp) == (70 if late == "correct" else 100)
    if late == "aside":
        reader = RangeReader(topic.cluster, f"{topic.name}.late", 0, 0, 2, skip_lost=False)
        assert [json.loads(records.value(row) or b"")["id"] for records in reader for row in range(2)] == [
            2,
            3,
        ]


def test_records_removed_before_they_were_read(topics: Callable[..., Topic]) -> None:
    topic = topics()
    topic.put(0, *({"id": i} for i in range(10)))
    start = topic.step(topic.driver.initial(), max_rows=2)
    _delete_records(topic, before=5)
    with pytest.raises(RecordsLost, match=rf'{topic.name}-0: .* offset 2, .* offsets 5 to 10.*lost="skip"'):
        topic.step(start)
    topic.declare(lost="skip")
    end = topic.step(start)
    assert topic.ids() == [5, 6, 7, 8, 9]
    assert end.offsets == {0: 10, 1: 0}


def _delete_records(topic: Topic, before: int) -> None:
    body = {
        "topics": [{"name": topic.name, "partitions": [{"partition_index": 0, "offset": before}]}],
        "timeout": 5000,
    }
    topic.cluster.request(21, 2, body)


def test_a_topic_created_again_is_noticed(topics: Callable[..., Topic]) -> None:
    topic = topics()
    topic.put(0, {"id": 1}, {"id": 2})
    start = topic.step(topic.driver.initial())
    admin = AdminClient({"bootstrap.servers": topic.bootstrap})
    admin.delete_topics([topic.name])[topic.name].result(10)
    topic.clock.advance(10_000)
    with pytest.raises(TopicChanged, match="there is no topic"):
        topic.step(start)
    topic.cluster.forget()
    topic.cluster.ensure_topic(topic.name, 2)
    topic.put(0, {"id": 3})
    topic.clock.advance(10_000)
    with pytest.raises(TopicChanged, match='lost="skip"'):
        topic.step(start)
    topic.declare(lost="skip")
    topic.step(start)
    assert topic.ids() == [3]


def test_new_partitions_are_read_from_their_start(topics: Callable[..., Topic]) -> None:
    topic = topics(start="latest")
    topic.put(0, {"id": 1})
    start = topic.driver.initial()
    assert start.offsets == {0: 1, 1: 0}
    admin = AdminClient({"bootstrap.servers": topic.bootstrap})
    admin.create_partitions([NewPartitions(topic.name, 3)])[topic.name].result(10)
    producer = Producer({"bootstrap.servers": topic.bootstrap, "log_level": 0})
    producer.produce(topic.name, b'{"id": 9}', partition=2)
    producer.flush()
    topic.clock.advance(10_000)
    end = topic.step(start)
    assert topic.ids() == [9]
    assert end.offsets == {0: 1, 1: 0, 2: 1}


def test_a_record_in_a_watched_topic_ends_the_wait(topics: Callable[..., Topic]) -> None:
    import threading
    import time

    watched = topics()
    topic = topics(watch=(watched.name,))
    start = topic.driver.initial()
    assert topic.step(start) is start  # now both are watched at their ends
    timer = threading.Timer(0.05, lambda: watched.put(0, {"id": 1}))
    timer.start()
    began = time.monotonic()
    assert topic.step(start) is start
    assert time.monotonic() - began < WAIT_MS / 1000 - 0.1
    timer.join()


def test_the_group_shows_how_far_the_query_is(topics: Callable[..., Topic]) -> None:
    topic = topics(group="headwater.test.query")
    topic.put(0, {"id": 1})
    end = topic.step(topic.driver.initial())
    assert topic.step(end) is end  # at rest, what is done is committed at once
    assert topic.cluster.group_offsets("headwater.test.query", topic.name, [0, 1]) == {0: 1, 1: 0}
    topic.put(0, {"id": 2})
    end = topic.step(end)
    topic.driver.commit(end)  # a second has not passed, but the query ends
    topic.driver.close()
    assert topic.cluster.group_offsets("headwater.test.query", topic.name, [0]) == {0: 2}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_and_aborted_transactions(topics: Callable[..., Topic], codec: str) -> None:
    topic = topics()
    settings = {
        "bootstrap.servers": topic.bootstrap,
        "compression.type": codec,
        "linger.ms": 50,
        "log_level": 0,
    }
    producer = Producer({**settings, "transactional.id": topic.name})
    producer.init_transactions()
    for ids, commit in ((range(0, 50), True), (range(50, 100), False), (range(100, 150), True)):
        producer.begin_transaction()
        for i in ids:
            producer.produce(topic.name, b'{"id": %d}' % i, partition=0)
        producer.flush()
        producer.commit_transaction() if commit else producer.abort_transaction()
    end = topic.step(topic.driver.initial())
    assert topic.ids() == [*range(50), *range(100, 150)]
    assert end.offsets[0] == 153


def test_avro_arrow_and_raw_values(topics: Callable[..., Topic]) -> None:
    avro = topics(format="avro")
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(avro_schema(SCHEMA)), {"id": 7, "at": None})
    avro.put(0, written.getvalue(), b"\x02", written.getvalue() + b"x")
    avro.step(avro.driver.initial())
    assert avro.ids() == [7]

    arrow = topics(format="arrow")
    table = pa.table({"more": ["x", "y"], "id": pa.array([1, 2], pa.int64())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    arrow.put(0, sink.getvalue().to_pybytes(), b"nonsense", sink.getvalue().to_pybytes())
    arrow.step(arrow.driver.initial())
    assert arrow.ids() == [1, 2, 1, 2]


def test_null_values_are_deletes_and_give_no_row(topics: Callable[..., Topic]) -> None:
    topic = topics()
    produce(topic.cluster, topic.name, [Record(0, 0, KEYS[0], None), Record(0, 0, KEYS[0], b'{"id": 1}')])
    topic.step(topic.driver.initial())
    assert topic.ids() == [1]


def test_a_broker_that_restarts_is_waited_for(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        topic = Topic(broker)
        topic.put(0, {"id": 1})
        end = topic.step(topic.driver.initial())
        broker.kill()
        broker.start()
        topic.put(0, {"id": 2})
        topic.step(end)
        assert topic.ids() == [2]
        topic.close()
        hang_up()
