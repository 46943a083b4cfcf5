"""A broker that is asked for too much: full disk, clients that do not read or send slowly, limits."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kio.schema.errors import ErrorCode

from bench.process import resident_megabytes
from clients.brokers import Broker, eventually
from clients.raw import Closed, Raw, batch, produce, topic_id
from headwater.testing.process import BrokerProcess
from net.test_crash import small_disk

__all__ = ["small_disk"]

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

MB = 1_000_000


@pytest.fixture
def running(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker with little memory for its clients."""
    settings = {"headwater.fetch.memory.bytes": "16000000", "queued.max.request.bytes": "4000000"}
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        yield broker


def connect(broker: BrokerProcess) -> Raw:
    return Raw(Broker("headwater", broker.host, broker.port))


def fetch(raw: Raw, identity: Any, max_bytes: int) -> None:
    """Ask for records, and leave the answer unread."""
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": max_bytes}
    raw.start(
        "fetch", 13, max_wait=500, min_bytes=1, max_bytes=max_bytes, session_id=0, session_epoch=-1, rack_id="",
        topics=[{"topic_id": identity, "partitions": [wanted]}], forgotten_topics_data=[],
    )  # fmt: skip


def fill_topic(broker: BrokerProcess, topic: str, megabytes: int, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics(
        [NewTopic(topic, 1, config={name.replace("_", "."): v for name, v in config.items()})]
    )[topic].result(20)
    with connect(broker) as raw:
        for _ in range(megabytes):
            assert produce(raw, topic, batch(value=bytes(MB))).error_code is ErrorCode.none


# -- the disk --------------------------------------------------------------------------------------


def test_below_the_reserve_records_are_refused_and_all_else_goes_on(small_disk: Path) -> None:
    settings = {"headwater.disk.reserve.bytes": "8000000"}
    with BrokerProcess(small_disk / "data", settings=settings) as broker, connect(broker) as raw:
        fill_topic(broker, "kept", 2)
        fill_topic(broker, "other", 1)
        ballast = small_disk / "ballast"
        ballast.write_bytes(bytes(16 * MB))
        refused = eventually(
            lambda: produce(raw, "kept", batch()), lambda seen: seen.error_code is not ErrorCode.none
        )
        assert refused.error_code is ErrorCode.kafka_storage_error
        assert "headwater.disk.reserve.bytes" in refused.error_message
        assert "records are refused" in broker.errors()
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["kept"])
        message = eventually(lambda: consumer.poll(1), lambda seen: seen is not None)
        assert message is not None
        assert message.error() is None
        consumer.commit(message=message, asynchronous=False)
        assert consumer.committed([TopicPartition("kept", 0)])[0].offset == 1
        consumer.close()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.delete_topics(["other"])["other"].result(20)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        errors: list[Any] = []
        producer.produce("kept", b"patient", on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(1) == 1, "a real producer retries"
        ballast.unlink()
        assert producer.flush(10) == 0
        assert errors == [None]
        assert broker.errors().count("records are refused") == 1


# -- memory ----------------------------------------------------------------------------------------


def test_consumers_that_do_not_read_take_no_more_than_the_limit(running: BrokerProcess) -> None:
    fill_topic(running, "big", 40)
    before = resident_megabytes(running.pid)
    with connect(running) as raw:
        identity = topic_id(raw, "big")
    with ExitStack() as slow:
        for _ in range(40):
            fetch(slow.enter_context(connect(running)), identity, 50 * MB)
        time.sleep(2)
        assert resident_megabytes(running.pid) - before < 16 + 10
    with connect(running) as raw:
        for _ in range(20):
            fetch(raw, identity, 3 * MB)
            records = raw.finish("fetch", 13).responses[0].partitions[0].records
            if records:
                break
        assert records, "who reads is served"


def test_requests_that_arrive_slowly_take_no_more_than_was_sent(running: BrokerProcess) -> None:
    before = resident_megabytes(running.pid)
    fill_topic(running, "any", 1)
    with ExitStack() as slow:
        for _ in range(60):
            connection = slow.enter_context(socket.create_connection((running.host, running.port)))
            connection.sendall(struct.pack(">i", 90 * MB) + bytes(3000))
        time.sleep(1)
        assert resident_megabytes(running.pid) - before < 20
        with connect(running) as raw:
            raw.call("api_versions", 0)
            assert produce(raw, "any", batch(value=bytes(3000))).error_code is ErrorCode.none


def test_a_request_that_there_is_no_memory_for_waits_and_is_served(running: BrokerProcess) -> None:
    fill_topic(running, "big", 1, max_message_bytes="5000000")
    slow = socket.create_connection((running.host, running.port))
    slow.sendall(struct.pack(">i", 3 * MB) + bytes(3000))
    time.sleep(0.3)
    answered = threading.Event()
    answers: list[Any] = []

    def send() -> None:
        with connect(running) as raw:
            answers.append(produce(raw, "big", batch(value=bytes(3 * MB))).error_code)
        answered.set()

    sender = threading.Thread(target=send)
    sender.start()
    assert not answered.wait(1)
    slow.close()
    assert answered.wait(10)
    sender.join()
    assert answers == [ErrorCode.none]


# -- limits ----------------------------------------------------------------------------------------


def quota(raw: Raw, kind: str, name: str | None, key: str, value: float) -> None:
    entry = {
        "entity": [{"entity_type": kind, "entity_name": name}],
        "ops": [{"key": key, "value": value, "remove": False}],
    }
    [answer] = raw.call("alter_client_quotas", 1, entries=[entry], validate_only=False).entries
    assert answer.error_code is ErrorCode.none


def throttled(raw: Raw, topic: str, size: int) -> float:
    """Produce, and return how many seconds the answer tells to wait."""
    data = [{"name": topic, "partition_data": [{"index": 0, "records": batch(value=bytes(size))}]}]
    answer = raw.call("produce", 9, acks=-1, timeout=10_000, topic_data=data)
    assert answer.responses[0].partition_responses[0].error_code is ErrorCode.none
    return float(answer.throttle_time.total_seconds())


def test_quotas_outlive_the_broker(running: BrokerProcess) -> None:
    fill_topic(running, "t", 1)
    with connect(running) as raw:
        quota(raw, "client-id", "raw", "producer_byte_rate", 100_000)
    running.kill()
    running.start()
    with connect(running) as raw:
        assert throttled(raw, "t", 900_000) == 0
        assert throttled(raw, "t", 150_000) > 0


def test_an_address_that_connects_too_often_is_kept_out(running: BrokerProcess) -> None:
    with connect(running) as raw:
        quota(raw, "ip", "127.0.0.1", "connection_creation_rate", 1)
    served = closed = 0
    for _ in range(16):
        with connect(running) as raw:
            try:
                raw.call("api_versions", 0)
                served += 1
            except Closed:
                closed += 1
    assert served >= 8
    assert closed >= 1


def test_a_share_of_the_processor(running: BrokerProcess) -> None:
    fill_topic(running, "t", 1)
    with connect(running) as raw:
        quota(raw, "user", None, "request_percentage", 0.0001)
        waits = [throttled(raw, "t", 500_000) for _ in range(2)]
    assert 0 < max(waits) <= 1, "nobody waits longer than a sample"


def test_a_topic_that_is_limited_slows_its_consumers(running: BrokerProcess) -> None:
    fill_topic(running, "t", 12, headwater_consume_byte_rate="1000000")
    with connect(running) as raw:
        identity = topic_id(raw, "t")
        sizes = []
        waits = []
        for offset in range(12):
            wanted = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": MB}
            answer = raw.call(
                "fetch", 13, max_wait=500, min_bytes=1, session_id=0, session_epoch=-1, rack_id="",
                topics=[{"topic_id": identity, "partitions": [wanted]}], forgotten_topics_data=[],
            )  # fmt: skip
            waits.append(answer.throttle_time.total_seconds())
            sizes.append(len(answer.responses))
            if waits[-1]:
                break
    assert 9 <= len(waits) <= 11
    assert waits[-1] > 0
    assert sizes[-1] == 0


def test_a_limit_can_be_lifted_while_the_broker_runs(running: BrokerProcess) -> None:
    fill_topic(running, "t", 1, headwater_produce_byte_rate="100000")
    with connect(running) as raw:
        assert throttled(raw, "t", 500_000) > 0
    removal = {"name": "headwater.produce.byte.rate", "config_operation": 1, "value": None}
    topic = {"resource_type": 2, "resource_name": "t", "configs": [removal]}
    with connect(running) as raw:
        answer = raw.call("incremental_alter_configs", 1, resources=[topic], validate_only=False)
        assert answer.responses[0].error_code is ErrorCode.none
    with connect(running) as raw:
        assert throttled(raw, "t", 500_000) == 0


def test_a_batch_larger_than_the_limit_allows_is_read_all_the_same(running: BrokerProcess) -> None:
    fill_topic(running, "t", 1, headwater_consume_byte_rate="50000")
    with connect(running) as raw:
        identity = topic_id(raw, "t")
        fetch(raw, identity, MB)
        answer = raw.finish("fetch", 13)
        assert answer.responses[0].partitions[0].records
        assert answer.throttle_time.total_seconds() == pytest.approx(10, abs=1)


def test_fetches_are_read_into_memory_that_earlier_ones_had(running: BrokerProcess) -> None:
    fill_topic(running, "read", 20)
    with connect(running) as raw:
        identity = topic_id(raw, "read")
        for _ in range(5):
            _fetch_all(raw, identity)
        before = _page_faults(running.pid)
        for _ in range(20):
            _fetch_all(raw, identity)
        faults = _page_faults(running.pid) - before
    assert faults < 20 * MB // 4096 / 4, "a page that is asked for anew is cleared first"


def _fetch_all(raw: Raw, identity: Any) -> None:
    fetch(raw, identity, MB)
    raw.finish("fetch", 13)


def _page_faults(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[7])
