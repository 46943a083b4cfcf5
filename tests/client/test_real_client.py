"""The client against Headwater and against Kafka 4.3.0."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from clients.access.certificates import Authority
from clients.access.secured import PASSWORD, USER, add_user
from headwater.client import (
    EARLIEST,
    LATEST,
    AuthenticationFailed,
    Cluster,
    Coordinator,
    UnknownTopic,
    Unreachable,
)
from headwater.client.fetch import begin_fetch, end_fetch
from headwater.client.produce import produce
from headwater.core.urls import KafkaUrl
from headwater.record.committed import committed_batches
from headwater.record.records import Record, decode_batch
from headwater.testing.kafka import RealKafka
from headwater.testing.process import BrokerProcess, free_port

pytestmark = pytest.mark.real
_serial = itertools.count(1)


@pytest.fixture(scope="module", params=["headwater", "kafka"])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "headwater":
        with BrokerProcess(tmp_path_factory.mktemp("client") / "data") as broker:
            yield broker.bootstrap
    else:
        request.getfixturevalue("java")
        with RealKafka() as kafka:
            yield kafka.bootstrap


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Cluster]:
    made = Cluster(KafkaUrl.parse(f"kafka://{bootstrap}"), "test")
    yield made
    made.close()


@pytest.fixture
def topic(cluster: Cluster) -> str:
    name = f"topic-{os.getpid()}-{next(_serial)}"
    assert cluster.ensure_topic(name, 2, {"retention.ms": "3600000"})
    assert not cluster.ensure_topic(name, 2)
    return name


def read(cluster: Cluster, topic: str, partition: int) -> list[Record]:
    found: list[Record] = []
    end = cluster.offsets(topic, {partition: LATEST})[partition]
    position = 0
    while position < end:
        connection = cluster.connection(cluster.leader(topic, partition))
        begin_fetch(connection, {(topic, partition): position}, max_bytes=1 << 20)
        fetched = end_fetch(connection)[topic, partition]
        assert fetched.error_code == 0
        for at, _ in committed_batches(fetched.records, fetched.aborted):
            found += [record for record in decode_batch(fetched.records, at) if record.offset >= position]
        position = max(position, *(h for h in _ends(fetched.records)))
    return found


def _ends(records: memoryview) -> list[int]:
    from headwater.record.batch import batches

    return [header.last_offset + 1 for _, header in batches(records)] or [0]


def test_a_topic_is_created_once_and_described(cluster: Cluster, topic: str) -> None:
    assert cluster.partitions(topic) == [0, 1]
    assert cluster.topic(topic).topic_id is not None
    with pytest.raises(UnknownTopic, match="missing-topic"):
        cluster.topic("missing-topic")
    with pytest.raises(UnknownTopic):
        cluster.leader(topic, 7)


def test_records_go_where_kafkas_own_producer_puts_them(bootstrap: str, cluster: Cluster, topic: str) -> None:
    keys = [f"key-{i}".encode() for i in range(50)]
    produce(cluster, topic, [Record(0, 1000, key, b"ours") for key in keys])
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
    for key in keys:
        producer.produce(topic, b"theirs", key)
    producer.flush()
    for partition in (0, 1):
        by_key: dict[bytes | None, set[bytes | None]] = {}
        for record in read(cluster, topic, partition):
            by_key.setdefault(record.key, set()).add(record.value)
        assert by_key
        assert all(values == {b"ours", b"theirs"} for values in by_key.values())


def test_offsets_of_ends_and_times(cluster: Cluster, topic: str) -> None:
    produce(cluster, topic, [Record(0, 1000 * i, None, b"x") for i in range(1, 6)])
    assert cluster.offsets(topic, {0: EARLIEST, 1: EARLIEST}) == {0: 0, 1: 0}
    assert cluster.offsets(topic, {0: LATEST, 1: LATEST}) == {0: 5, 1: 0}
    assert cluster.offsets(topic, {0: 3000, 1: 3000}) == {0: 2, 1: 0}
    assert cluster.offsets(topic, {0: 10_000}) == {0: 5}
    assert cluster.newest(topic, [0, 1]) == {0: 5000, 1: -1}


def test_aborted_transactions_are_not_seen_and_open_ones_hold_the_end(
    bootstrap: str, cluster: Cluster, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions()
    for value, commit in ((b"aborted", False), (b"committed", True)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush()
        producer.commit_transaction() if commit else producer.abort_transaction()
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush()
    stable = cluster.offsets(topic, {0: LATEST})[0]
    assert cluster.offsets(topic, {0: LATEST}, read_committed=False)[0] == stable + 1
    assert [record.value for record in read(cluster, topic, 0)] == [b"committed"]
    producer.abort_transaction()


def test_group_offsets(cluster: Cluster, topic: str) -> None:
    group = f"group-{topic}"
    assert cluster.group_offsets(group, topic, [0, 1]) == {}
    cluster.commit_group(group, topic, {0: 5, 1: 7})
    assert cluster.group_offsets(group, topic, [0, 1, 2]) == {0: 5, 1: 7}
    answer = cluster.request(18, 3, {"client_software_name": "t", "client_software_version": "1"},
                             node=Coordinator.of_group(group))  # fmt: skip
    assert answer.error_code == 0


def test_a_broker_that_restarts_is_waited_for(tmp_path_factory: pytest.TempPathFactory) -> None:
    with BrokerProcess(tmp_path_factory.mktemp("restart") / "data") as broker:
        cluster = Cluster(KafkaUrl.parse(f"kafka://{broker.bootstrap}"), "test")
        cluster.ensure_topic("t", 1)
        produce(cluster, "t", [Record(0, 1, None, b"before")])
        broker.restart()
        produce(cluster, "t", [Record(0, 1, None, b"after")])
        assert [record.value for record in read(cluster, "t", 0)] == [b"before", b"after"]
        cluster.close()


def test_nobody_there_is_said_with_the_address() -> None:
    port = free_port()
    cluster = Cluster(KafkaUrl.parse(f"kafka://ann:secret@127.0.0.1:{port}"), deadline_seconds=0.1)
    with pytest.raises(Unreachable, match=str(port)):
        cluster.topic("t")


def test_tls_with_a_password(openssl: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    authority = Authority(openssl, tmp_path_factory.mktemp("authority"), "authority")
    certificate = authority.issue("broker")
    data = tmp_path_factory.mktemp("secured") / "data"
    add_user(data)
    options = (f"--tls-cert={certificate.cert}", f"--tls-key={certificate.key}", "--auth=sasl")
    with BrokerProcess(data, options=options) as broker:
        where = (broker.host, broker.port)
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
            url = KafkaUrl((where,), USER, PASSWORD, mechanism, tls=True, ca=str(authority.cert))
            cluster = Cluster(KafkaUrl.parse(url.text()), deadline_seconds=5)
            cluster.ensure_topic("t", 1)
            assert cluster.partitions("t") == [0]
            cluster.close()
        wrong = KafkaUrl((where,), USER, "wrong", "SCRAM-SHA-512", tls=True, ca=str(authority.cert))
        with pytest.raises(AuthenticationFailed, match=USER):
            Cluster(wrong, deadline_seconds=5).topic("t")
        with pytest.raises(Unreachable, match="certificate"):
            Cluster(KafkaUrl((where,), USER, PASSWORD, "PLAIN", tls=True), deadline_seconds=0.1).topic("t")
        with pytest.raises(Unreachable, match="tls=true"):
            Cluster(KafkaUrl((where,)), deadline_seconds=0.1).topic("t")
