"""The archive, as clients see it: Headwater's, and Kafka's tiered storage.

Kafka copies a segment as soon as it is closed and drops its own later, where Headwater moves it when it is due. So
tests look once what is due has moved, and then both answer the same.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic
from kio.schema.errors import ErrorCode

from headwater.testing.jars import TIERED_STORAGE
from headwater.testing.kafka import RealKafka
from headwater.testing.process import BrokerProcess

from .brokers import HOUR_AGO, Broker, eventually, unique
from .raw import Raw, end_offsets, topic_id
from .tools import CONSOLE_CONSUMER, GET_OFFSETS, Tools

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

SECONDS = 30
SETTINGS = {
    "log.retention.check.interval.ms": "200",
    "remote.log.manager.task.interval.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
}
# Kafka keeps what it deletes for a minute, and waits before it looks after its logs for the first time.
KAFKA_SETTINGS = {
    "log.initial.task.delay.ms": "200",
    "log.segment.delete.delay.ms": "200",
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
    "remote.log.metadata.manager.listener.name": "PLAINTEXT",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
    "rsm.config.delete.on.close": "false",
}
ARCHIVED = {
    "remote.storage.enable": "true",
    "segment.bytes": str(1024 * 1024),
    "local.retention.bytes": "1",
}
RECORD_BYTES = 10_000
BATCH = 10
SEGMENT = 100  # records: an eleventh batch would be more than segment.bytes
COUNT = 350
LOCAL_START = 300  # where the growing segment begins
EARLIEST, EARLIEST_LOCAL, LATEST_TIERED = -2, -4, -5
Rows = list[tuple[int, bytes | None]]


def files_below(directory: Path, topic: str, ending: str) -> list[str]:
    """Return the names of a topic's files, while others of them come and go."""
    found = [name for place, _, names in os.walk(directory) if topic in place for name in names]
    return sorted(name for name in found if name.endswith(ending))


@dataclass(frozen=True)
class Tiered(Broker):
    """A broker with an archive, and the directory that this is."""

    store: Path

    def files(self, topic: str) -> list[str]:
        """Return the names of a topic's segments in the archive."""
        return files_below(self.store, topic, ".log")


@pytest.fixture(scope="module", params=["headwater", "kafka"], ids=["on-headwater", "on-kafka"])
def tiered(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiered]:
    """A broker that looks all the time for what is to be moved or deleted."""
    place = tmp_path_factory.mktemp("tiered")
    store = place / "store"
    store.mkdir()
    if request.param == "headwater":
        settings = SETTINGS | {"headwater.archive.dir": str(store)}
        with BrokerProcess(place / "data", settings=settings) as ours:
            yield Tiered("headwater", ours.host, ours.port, store)
    else:
        request.getfixturevalue("java")
        storage = {
            "remote.log.storage.manager.class.path": TIERED_STORAGE.classpath(),
            "rsm.config.dir": str(store),
        }
        with RealKafka(properties=SETTINGS | KAFKA_SETTINGS | storage) as kafka:
            yield Tiered("kafka", kafka.host, kafka.port, store)


@pytest.fixture(scope="module")
def filled(tiered: Tiered) -> str:
    """A topic whose beginning is in the archive, for tests that only read."""
    return fill(tiered)


def create(broker: Broker, **config: str) -> str:
    name = unique("archived")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topic = NewTopic(name, num_partitions=1, replication_factor=1, config=config)
    admin.create_topics([topic])[name].result(SECONDS)
    with Raw(broker) as raw:
        eventually(lambda: end_offsets(raw, name), lambda seen: seen == [0])
    return name


def alter(broker: Broker, topic: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in config.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    [future] = admin.incremental_alter_configs([resource]).values()
    future.result(SECONDS)


def value(number: int) -> bytes:
    return b"%08d" % number + b"x" * (RECORD_BYTES - 8)


def rows(first: int, end: int) -> Rows:
    return [(number, value(number)) for number in range(first, end)]


def write(broker: Broker, topic: str, count: int, first: int = 0) -> None:
    """Produce records in batches of a known size, one second apart, so that the segments are known as well."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1000})
    for number in range(first, first + count):
        producer.produce(topic, value(number), partition=0, timestamp=HOUR_AGO + 1000 * number)
        if number % BATCH == BATCH - 1:
            assert producer.flush(SECONDS) == 0
    assert producer.flush(SECONDS) == 0


def fill(broker: Broker, count: int = COUNT, **config: str) -> str:
    """Return a topic of which all but the growing segment is in the archive."""
    topic = create(broker, **ARCHIVED | config)
    write(broker, topic, count)
    await_local_start(broker, topic, (count - 1) // SEGMENT * SEGMENT)
    return topic


def await_local_start(broker: Broker, topic: str, wanted: int) -> None:
    eventually(lambda: offset_at(broker, topic, EARLIEST_LOCAL), lambda seen: seen == wanted, seconds=SECONDS)


def offset_at(broker: Broker, topic: str, timestamp: int) -> int:
    error, offset = look_up(broker, topic, timestamp)
    assert error == ErrorCode.none
    return offset


def look_up(broker: Broker, topic: str, timestamp: int) -> tuple[ErrorCode, int]:
    asked = [{"partition_index": 0, "timestamp": timestamp}]
    with Raw(broker) as raw:
        answer = raw.call(
            "list_offsets", 9, replica_id=-1, isolation_level=0, topics=[{"name": topic, "partitions": asked}]
        )
    [part] = answer.topics[0].partitions
    return part.error_code, int(part.offset)


def reader(broker: Broker, *, reset: str = "error", isolation: str = "read_committed") -> Consumer:
    """Give a consumer that tells of the end, and of an offset that is not there."""
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "none",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": reset,
        "isolation.level": isolation,
    }
    return Consumer(settings)


def to_the_end(consumer: Consumer) -> Rows:
    """Consume what a consumer is assigned to up to its end."""
    found: Rows = []
    while True:
        message = consumer.poll(SECONDS)
        assert message is not None, f"the end was not reached after {len(found)} records"
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            return found
        offset = message.offset()
        assert offset is not None
        found.append((offset, message.value()))


def read(
    broker: Broker,
    topic: str,
    offset: int = OFFSET_BEGINNING,
    *,
    reset: str = "error",
    isolation: str = "read_committed",
) -> Rows:
    with closing(reader(broker, reset=reset, isolation=isolation)) as consumer:
        consumer.assign([TopicPartition(topic, 0, offset)])
        return to_the_end(consumer)


class TestReading:
    """What is in the archive reads as if it were not there."""

    @pytest.mark.parametrize("offset", [OFFSET_BEGINNING, 155, 299, 300])
    def test_confluent_reads_every_record_once_and_in_order(
        self, tiered: Tiered, filled: str, offset: int
    ) -> None:
        assert read(tiered, filled, offset) == rows(max(offset, 0), COUNT)

    def test_a_consumer_seeks_into_the_archive_and_back(self, tiered: Tiered, filled: str) -> None:
        with closing(reader(tiered)) as consumer:
            consumer.assign([TopicPartition(filled, 0, 340)])
            assert to_the_end(consumer) == rows(340, COUNT)
            consumer.seek(TopicPartition(filled, 0, 123))
            assert to_the_end(consumer) == rows(123, COUNT)

    def test_aiokafka_reads_every_record_once_and_in_order(self, tiered: Tiered, filled: str) -> None:
        async def consume() -> Rows:
            consumer = AIOKafkaConsumer(bootstrap_servers=tiered.bootstrap)
            await consumer.start()
            try:
                partition = AioPartition(filled, 0)
                consumer.assign([partition])
                await consumer.seek_to_beginning(partition)
                found = [await asyncio.wait_for(consumer.getone(), SECONDS) for _ in range(COUNT)]
                return [(row.offset, row.value) for row in found]
            finally:
                await consumer.stop()

        assert asyncio.run(consume()) == rows(0, COUNT)

    def test_javas_consumer_reads_every_record_once_and_in_order(
        self, java: str, tiered: Tiered, filled: str, tmp_path: Path
    ) -> None:
        ended = Tools(tiered, tmp_path).run(
            CONSOLE_CONSUMER, "--topic", filled, "--from-beginning", "--max-messages", str(COUNT)
        )
        assert ended.lines == [value(number).decode() for number in range(COUNT)]

    def test_a_topic_reads_whole_while_its_segments_move(self, tiered: Tiered) -> None:
        topic = create(tiered, **ARCHIVED)
        write(tiered, topic, COUNT)

        def look() -> int:
            assert read(tiered, topic) == rows(0, COUNT)
            return offset_at(tiered, topic, EARLIEST_LOCAL)

        eventually(look, lambda seen: seen == LOCAL_START, seconds=2 * SECONDS)

    def test_a_topic_goes_on_when_all_of_it_is_in_the_archive(self, tiered: Tiered) -> None:
        topic = create(tiered, **ARCHIVED | {"local.retention.ms": "1000"})
        write(tiered, topic, 150)
        await_local_start(tiered, topic, 150)
        assert offset_at(tiered, topic, LATEST_TIERED) == 149
        assert offset_at(tiered, topic, HOUR_AGO + 149_000) == 149
        assert read(tiered, topic) == rows(0, 150)
        write(tiered, topic, 20, first=150)
        await_local_start(tiered, topic, 170)
        assert read(tiered, topic, 99) == rows(99, 170)

    def test_nothing_more_moves_once_copying_is_disabled(self, tiered: Tiered) -> None:
        topic = fill(tiered)
        alter(tiered, topic, **{"remote.log.copy.disable": "true", "local.retention.bytes": "-2"})
        write(tiered, topic, 250, first=COUNT)
        time.sleep(1)  # several looks at what would be due
        assert offset_at(tiered, topic, EARLIEST_LOCAL) == LOCAL_START
        assert offset_at(tiered, topic, LATEST_TIERED) == LOCAL_START - 1
        assert len(tiered.files(topic)) == 3
        assert read(tiered, topic) == rows(0, COUNT + 250)

    def test_nobody_sees_what_was_aborted(self, tiered: Tiered) -> None:
        topic = create(tiered, **ARCHIVED)
        producer = Producer({"bootstrap.servers": tiered.bootstrap, "transactional.id": unique("writer")})
        producer.init_transactions(SECONDS)
        committed: list[bytes | None] = []
        for turn in range(8):
            producer.begin_transaction()
            values = [value(1000 * turn + number) for number in range(50)]
            for each in values:
                producer.produce(topic, each, partition=0)
            assert producer.flush(SECONDS) == 0
            if turn in (1, 3):
                producer.abort_transaction(SECONDS)
            else:
                producer.commit_transaction(SECONDS)
                committed += values
        # The second aborted transaction ends at offset 203, its marker.
        eventually(lambda: offset_at(tiered, topic, EARLIEST_LOCAL), lambda seen: seen > 203, 2 * SECONDS)
        assert len(read(tiered, topic, isolation="read_uncommitted")) == 400
        found = read(tiered, topic, isolation="read_committed")
        assert [each for _, each in found] == committed


class TestOffsets:
    """Where the archive begins and ends, and what was when."""

    @pytest.mark.parametrize(
        ("time", "offset"),
        [
            ("earliest", 0),
            ("earliest-local", LOCAL_START),
            ("latest-tiered", LOCAL_START - 1),
            ("latest", COUNT),
        ],
    )
    def test_kafkas_tool_tells_where_it_is(
        self, java: str, tiered: Tiered, filled: str, tmp_path: Path, time: str, offset: int
    ) -> None:
        ended = Tools(tiered, tmp_path).run(GET_OFFSETS, "--topic", filled, "--time", time)
        assert ended.lines == [f"{filled}:0:{offset}"]

    def test_records_are_found_by_their_times(self, tiered: Tiered, filled: str) -> None:
        wanted = {0: 0, 1: 1, 12_345: 13, 99_000: 99, 99_001: 100, 200_000: 200, 299_999: 300, 349_000: 349}
        with closing(reader(tiered)) as consumer:
            for after, offset in wanted.items():
                asked = [TopicPartition(filled, 0, HOUR_AGO + after)]
                [found] = consumer.offsets_for_times(asked, timeout=SECONDS)
                assert (after, found.offset) == (after, offset)


class TestDeletion:
    """What goes from a log goes from its archive."""

    def test_records_are_deleted_up_to_an_offset(self, tiered: Tiered) -> None:
        topic = fill(tiered)
        admin = AdminClient({"bootstrap.servers": tiered.bootstrap})
        [future] = admin.delete_records([TopicPartition(topic, 0, 150)]).values()
        assert future.result(SECONDS).low_watermark == 150
        assert read(tiered, topic) == rows(150, COUNT)
        assert read(tiered, topic, 10, reset="earliest") == rows(150, COUNT)
        assert read(tiered, topic, 250) == rows(250, COUNT)
        with closing(reader(tiered)) as consumer:
            consumer.assign([TopicPartition(topic, 0, 149)])
            message = consumer.poll(SECONDS)
            assert message is not None
            error = message.error()
            assert error is not None
            assert error.code() == KafkaError._AUTO_OFFSET_RESET
            assert "out of range" in error.str()
        eventually(lambda: tiered.files(topic), lambda seen: len(seen) == 2, seconds=SECONDS)
        assert offset_at(tiered, topic, EARLIEST) == 150

    def test_the_whole_log_is_cut_to_its_size(self, tiered: Tiered) -> None:
        topic = fill(tiered, 650)
        assert len(tiered.files(topic)) == 6
        alter(tiered, topic, **{"retention.bytes": str(3 * 1024 * 1024)})
        # Of 6.6 MB, three segments are too much; a fourth would leave less than was asked for.
        eventually(lambda: offset_at(tiered, topic, EARLIEST), lambda seen: seen == 300, seconds=SECONDS)
        assert offset_at(tiered, topic, EARLIEST_LOCAL) == 600
        assert read(tiered, topic) == rows(300, 650)
        eventually(lambda: len(tiered.files(topic)), lambda seen: seen == 3, seconds=SECONDS)

    def test_a_topic_that_is_not_archived_any_more_begins_where_its_archive_ended(
        self, tiered: Tiered
    ) -> None:
        topic = fill(tiered)
        alter(tiered, topic, **{"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"})
        eventually(
            lambda: offset_at(tiered, topic, EARLIEST), lambda seen: seen == LOCAL_START, seconds=SECONDS
        )
        assert read(tiered, topic) == rows(LOCAL_START, COUNT)
        eventually(lambda: tiered.files(topic), lambda seen: seen == [], seconds=SECONDS)
        write(tiered, topic, 200, first=COUNT)
        assert read(tiered, topic) == rows(LOCAL_START, COUNT + 200)

    def test_a_deleted_topic_leaves_nothing(self, tiered: Tiered) -> None:
        topic = fill(tiered)
        assert len(tiered.files(topic)) == 3
        admin = AdminClient({"bootstrap.servers": tiered.bootstrap})
        admin.delete_topics([topic])[topic].result(SECONDS)
        eventually(lambda: tiered.files(topic), lambda seen: seen == [], seconds=SECONDS)


class TestSettings:
    """Settings that do not fit one another are refused, in Kafka's words."""

    @pytest.mark.parametrize(
        ("config", "message"),
        [
            (
                {"cleanup.policy": "compact"},
                "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy being an empty "
                "list.",
            ),
            (
                {"local.retention.ms": "2000", "retention.ms": "1000"},
                "Invalid value 2000 for configuration local.retention.ms: Value must not be more than retention.ms "
                "property value: 1000",
            ),
            (
                {"local.retention.bytes": "-1", "retention.bytes": "1000"},
                "Invalid value -1 for configuration local.retention.bytes: Value must not be -1 as retention.bytes "
                "value is set as 1000.",
            ),
            (
                {"remote.log.copy.disable": "true", "local.retention.bytes": "1"},
                "When `remote.log.copy.disable` is set to true, the `local.retention.bytes` and `retention.bytes` must "
                "be set to the identical value because there will be no more logs copied to the remote storage.",
            ),
        ],
    )
    def test_a_topic_is_not_created_nor_changed(
        self, tiered: Tiered, config: dict[str, str], message: str
    ) -> None:
        with pytest.raises(KafkaException) as refused:
            create(tiered, **{"remote.storage.enable": "true"} | config)
        assert told(refused.value) == (KafkaError.INVALID_CONFIG, message)
        topic = create(tiered, **{"remote.storage.enable": "true"})
        with pytest.raises(KafkaException) as refused:
            alter(tiered, topic, **config)
        assert told(refused.value) == (KafkaError.INVALID_CONFIG, message)

    def test_an_archive_is_not_forgotten_by_mistake(self, tiered: Tiered) -> None:
        topic = create(tiered, **ARCHIVED)
        with pytest.raises(KafkaException) as refused:
            alter(tiered, topic, **{"remote.storage.enable": "false"})
        assert told(refused.value) == (
            KafkaError.INVALID_CONFIG,
            "It is invalid to disable remote storage without deleting remote data. If you want to keep the remote data "
            "and turn to read only, please set `remote.storage.enable=true,remote.log.copy.disable=true`. If you want "
            "to disable remote storage and delete all remote data, please set "
            "`remote.storage.enable=false,remote.log.delete.on.disable=true`.",
        )


def told(error: KafkaException) -> tuple[int, str]:
    reason = error.args[0]
    return reason.code(), reason.str()


@dataclass(frozen=True)
class Ours:
    """A Headwater that is a test's own, and its archive."""

    process: BrokerProcess
    broker: Tiered

    def local(self, topic: str) -> list[str]:
        """Return the names of a topic's segments in the data directory."""
        return files_below(self.process.data, topic, ".log")

    def copies(self) -> list[str]:
        """Return the names of what is on its way to the archive."""
        return files_below(self.broker.store, "", ".new")


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Ours]:
    """A Headwater that takes its time for every segment that it moves."""
    store = tmp_path / "store"
    store.mkdir()
    settings = {
        "headwater.archive.dir": str(store),
        "remote.log.manager.copy.max.bytes.per.second": str(4 * 1024 * 1024),
    }
    with BrokerProcess(tmp_path / "data", settings=SETTINGS | settings) as process:
        yield Ours(process, Tiered("headwater", process.host, process.port, store))


class TestFailures:
    """What Headwater does when it ends amid a move, and when its archive is away."""

    @pytest.mark.parametrize("how", ["stop", "kill"])
    def test_all_that_was_acknowledged_is_there_after_an_end_amid_a_move(self, ours: Ours, how: str) -> None:
        count = 1_200
        topic = create(ours.broker, **ARCHIVED)
        acknowledged: list[int] = []
        settings = {
            "bootstrap.servers": ours.broker.bootstrap,
            "enable.idempotence": True,
            "reconnect.backoff.max.ms": 200,
        }
        producer = Producer(settings)

        def note(error: KafkaError | None, message: Message) -> None:
            assert error is None
            acknowledged.append(int((message.value() or b"")[:8]))

        def send() -> None:
            for number in range(count):
                producer.produce(topic, value(number), partition=0, on_delivery=note)
                producer.poll(0.002)
            producer.flush(2 * SECONDS)

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        for _ in range(4):
            eventually(ours.copies, bool, seconds=SECONDS)
            assert sender.is_alive(), "there is more to come"
            (ours.process.kill if how == "kill" else ours.process.stop)()
            ours.process.start()
        sender.join()
        assert acknowledged == list(range(count))
        assert read(ours.broker, topic) == rows(0, count)
        eventually(lambda: len(ours.local(topic)), lambda seen: seen == 1, seconds=2 * SECONDS)
        eventually(ours.copies, lambda seen: seen == [], seconds=SECONDS)
        assert not set(ours.local(topic)) & set(ours.broker.files(topic))
        assert read(ours.broker, topic) == rows(0, count)

    @pytest.mark.parametrize("restarts", [False, True], ids=["while-it-runs", "when-it-starts"])
    def test_all_else_goes_on_while_the_archive_is_away(self, ours: Ours, *, restarts: bool) -> None:
        broker, store = ours.broker, ours.broker.store
        topic, other = fill(broker), create(broker)
        away = store.with_name("away")
        store.rename(away)
        if restarts:
            store.mkdir()  # as a place that nothing is mounted on
            ours.process.restart()
        assert fetch_error(broker, topic, 0) == ErrorCode.kafka_storage_error
        assert look_up(broker, topic, HOUR_AGO + 123_000) == (ErrorCode.kafka_storage_error, -1)
        assert offset_at(broker, topic, HOUR_AGO + 345_000) == 345
        assert offset_at(broker, topic, EARLIEST) == 0
        with closing(reader(broker)) as waiting:
            waiting.assign([TopicPartition(topic, 0, 0)])
            assert waiting.poll(1) is None
            write(broker, topic, 150, first=COUNT)
            write(broker, other, 20)
            assert read(broker, topic, LOCAL_START) == rows(LOCAL_START, COUNT + 150)
            assert read(broker, other) == rows(0, 20)
            time.sleep(1)  # several looks at what is due
            assert offset_at(broker, topic, EARLIEST_LOCAL) == LOCAL_START
            assert list(store.rglob("*")) == [], "nothing moves to the disk that the archive is to relieve"
            assert fetch_error(broker, topic, 299) == ErrorCode.kafka_storage_error
            away.rename(store)
            assert to_the_end(waiting) == rows(0, COUNT + 150)
        await_local_start(broker, topic, 400)
        assert read(broker, topic) == rows(0, COUNT + 150)


def fetch_error(broker: Broker, topic: str, offset: int) -> ErrorCode:
    with Raw(broker) as raw:
        part = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1_000_000}
        asked = [{"topic_id": topic_id(raw, topic), "partitions": [part]}]
        answer = raw.call("fetch", 17, topics=asked, max_wait=0, min_bytes=1, max_bytes=1_000_000)
        [found] = answer.responses[0].partitions
        error: ErrorCode = found.error_code
        return error
