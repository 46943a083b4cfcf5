"""`headwater broker --metrics`: what Prometheus would read, and what nobody should send."""

from __future__ import annotations

import json
import math
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from prometheus_client.parser import text_string_to_metric_families

from headwater.net.kafka.produce import TIMED_EVERY
from headwater.testing.process import BrokerProcess, ProcessError, free_port

pytestmark = pytest.mark.real

Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Monitored:
    """A broker and its port for monitoring."""

    broker: BrokerProcess
    port: int

    def get(self, path: str, method: str = "GET") -> tuple[HTTPResponse, bytes]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request(method, path)
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response, body

    def scrape(self) -> dict[tuple[str, Labels], float]:
        """Return every sample, by name and labels."""
        response, body = self.get("/metrics")
        assert response.status == 200
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        found: dict[tuple[str, Labels], float] = {}
        for family in text_string_to_metric_families(body.decode()):
            assert family.documentation
            assert family.type in ("counter", "gauge", "histogram")
            for sample in family.samples:
                key = (sample.name, frozenset(sample.labels.items()))
                assert key not in found
                found[key] = sample.value
        return found

    def raw(self, data: bytes) -> bytes:
        """Send bytes, and return all that comes until the broker hangs up."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as connection:
            connection.sendall(data)
            answer = b""
            while chunk := connection.recv(65536):
                answer += chunk
            return answer


@pytest.fixture(scope="module")
def monitored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Monitored]:
    port = free_port()
    data = tmp_path_factory.mktemp("metrics") / "data"
    options = (f"--metrics=127.0.0.1:{port}", "--log-format=json")
    with BrokerProcess(data, options=options, settings={"group.initial.rebalance.delay.ms": "0"}) as broker:
        yield Monitored(broker, port)


def _key(name: str, **labels: str) -> tuple[str, Labels]:
    return name, frozenset(labels.items())


def test_what_happens_is_counted(monitored: Monitored) -> None:
    bootstrap = monitored.broker.bootstrap
    before = monitored.scrape()
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(100):
        producer.produce("counted", b"x" * 100, partition=0)
    assert producer.flush(20) == 0
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": 'a "group"\\\n', "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition("counted", 0, 0)])
    assert len(consumer.consume(100, 20)) == 100
    consumer.commit(offsets=[TopicPartition("counted", 0, 30)], asynchronous=False)
    connected = monitored.scrape()
    consumer.close()
    after = monitored.scrape()

    def grown(name: str, **labels: str) -> float:
        return after[_key(name, **labels)] - before.get(_key(name, **labels), 0)

    assert grown("headwater_records_in_total") == 100
    assert grown("headwater_record_bytes_in_total") > 10_000
    assert grown("headwater_record_bytes_out_total") >= grown("headwater_record_bytes_in_total")
    assert grown("headwater_network_bytes_in_total") > grown("headwater_record_bytes_in_total")
    assert grown("headwater_network_bytes_out_total") > grown("headwater_record_bytes_out_total")
    produced = grown("headwater_requests_total", api="produce")
    assert 1 <= produced <= 100
    timed = math.ceil(after[_key("headwater_requests_total", api="produce")] / TIMED_EVERY)
    assert after[_key("headwater_produce_seconds_count")] == timed >= 1
    assert after[_key("headwater_produce_seconds_bucket", le="+Inf")] == timed
    assert grown("headwater_fetch_seconds_count") >= 1
    assert grown("headwater_sync_round_seconds_count") >= 1
    assert grown("headwater_sync_round_seconds_sum") > 0
    assert grown("headwater_requests_total", api="offset_commit") == 1
    assert after[_key("headwater_log_end_offset", topic="counted", partition="0")] == 100
    assert after[_key("headwater_log_start_offset", topic="counted", partition="0")] == 0
    assert after[_key("headwater_topic_log_bytes", topic="counted")] == grown(
        "headwater_record_bytes_in_total"
    )
    lag = _key("headwater_group_lag", group='a "group"\\\n', topic="counted", partition="0")
    assert after[lag] == 70
    assert connected[_key("headwater_connections")] > after[_key("headwater_connections")] >= 1
    assert after[_key("headwater_partitions_failed")] == 0
    assert after[_key("headwater_metrics_omitted")] == 0


def test_the_machine_is_told(monitored: Monitored) -> None:
    samples = monitored.scrape()
    disk = os.statvfs(monitored.broker.data)
    assert samples[_key("headwater_disk_bytes")] == disk.f_blocks * disk.f_frsize
    assert 0 < samples[_key("headwater_disk_free_bytes")] <= samples[_key("headwater_disk_bytes")]
    status = Path(f"/proc/{monitored.broker.pid}/status").read_text()
    resident = int(status.partition("VmRSS:")[2].split()[0]) * 1024
    assert abs(samples[_key("process_resident_memory_bytes")] - resident) < 8 * 1024 * 1024
    assert 0 < samples[_key("process_cpu_seconds_total")] < 120
    assert abs(samples[_key("process_start_time_seconds")] - time.time()) < 600
    assert samples[_key("process_open_fds")] > 5
    assert 0 < samples[_key("headwater_recovery_seconds")] < 20
    time.sleep(0.6)
    lag = _key("headwater_event_loop_lag_seconds_count")
    assert monitored.scrape()[lag] > samples[lag]


def test_errors_are_counted_by_code(monitored: Monitored) -> None:
    admin = AdminClient({"bootstrap.servers": monitored.broker.bootstrap})
    admin.create_topics([NewTopic("small", 1, config={"max.message.bytes": "100"})])["small"].result(20)
    errors = _key("headwater_request_errors_total", api="produce", code="message_too_large")
    before = monitored.scrape().get(errors, 0)
    producer = Producer({"bootstrap.servers": monitored.broker.bootstrap})
    producer.produce("small", b"x" * 1000)
    producer.flush(20)
    assert monitored.scrape()[errors] == before + 1
    [line] = [
        line
        for line in map(json.loads, monitored.broker.errors().splitlines())
        if line.get("topic") == "small"
    ]
    assert (line["level"], line["peer"], line["client_id"], line["partition"]) == (
        "info",
        "127.0.0.1",
        "rdkafka",
        0,
    )
    assert line["reason"]


def test_health(monitored: Monitored) -> None:
    response, body = monitored.get("/health")
    assert (response.status, response.headers["Content-Type"]) == (200, "application/json")
    assert json.loads(body) == {"status": "ok", "reason": None, "failed_partitions": []}


def test_head(monitored: Monitored) -> None:
    response, body = monitored.get("/metrics", "HEAD")
    assert (response.status, body) == (200, b"")
    assert int(response.headers["Content-Length"]) > 1000


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"GET /metrics/../../etc/passwd HTTP/1.1\r\n\r\n", 404),
        (b"GET /\xff HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 405),
        (b"GET /metrics\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400),
        (b"GET  /metrics HTTP/1.1\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", 431),
        (b"GET /metrics?a=b HTTP/1.0\r\n\r\n", 200),
    ],
)
def test_other_requests(monitored: Monitored, data: bytes, status: int) -> None:
    try:
        answer = monitored.raw(data)
    except ConnectionResetError:  # it hung up while there was more to read
        assert status == 431
        return
    assert answer.startswith(b"HTTP/1.1 %d " % status)


def test_a_request_that_never_ends_is_cut_off(monitored: Monitored) -> None:
    began = time.monotonic()
    assert monitored.raw(b"GET /metrics HTTP/1.1\r\n") == b""
    assert 9 < time.monotonic() - began < 15


def test_too_many_series_are_left_out(tmp_path: Path) -> None:
    port = free_port()
    settings = {"headwater.metrics.max.series": "3"}
    with BrokerProcess(
        tmp_path / "data", options=(f"--metrics=127.0.0.1:{port}",), settings=settings
    ) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("wide", 10)])["wide"].result(20)
        samples = Monitored(broker, port).scrape()
    assert len([name for name, _ in samples if name == "headwater_log_end_offset"]) == 3
    partitions = samples[_key("headwater_partitions")]
    assert samples[_key("headwater_metrics_omitted")] >= partitions - 3 >= 8


def test_a_port_in_use_is_one_line(monitored: Monitored, tmp_path: Path) -> None:
    second = BrokerProcess(tmp_path / "data", options=(f"--metrics=127.0.0.1:{monitored.port}",))
    with pytest.raises(ProcessError, match=r"Error: cannot listen on 127\.0\.0\.1:\d+ for metrics"):
        second.start()


def test_garbage_does_not_fill_the_log(monitored: Monitored) -> None:
    before = len(monitored.broker.errors())
    refused = _key("headwater_connections_refused_total")
    counted = monitored.scrape()[refused]
    for i in range(300):
        with socket.create_connection((monitored.broker.host, monitored.broker.port), timeout=10) as client:
            client.sendall(b"\xff" * (4 + i % 7))
            client.recv(1)
    assert monitored.scrape()[refused] == counted + 300
    text = monitored.broker.errors()[before:]
    lines = [json.loads(line) for line in text.splitlines()]
    assert 1 <= len(lines) <= 15
    assert {(line["peer"], line["level"]) for line in lines} == {("127.0.0.1", "warning")}
