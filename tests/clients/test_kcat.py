"""kcat, as Debian packages it: an older librdkafka than confluent-kafka brings."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

from .brokers import HOUR_AGO, Broker, unique
from .confluent import produce

pytestmark = pytest.mark.real

Kcat = Callable[..., str]


@pytest.fixture
def run(kcat: str, broker: Broker) -> Kcat:
    """Run kcat against the broker and return what it prints."""

    def call(*arguments: str, given: str = "") -> str:
        command = [kcat, "-b", broker.bootstrap, *arguments]
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return call


def test_metadata_is_listed(run: Kcat, broker: Broker, wide_topic: str) -> None:
    listed = json.loads(run("-L", "-J"))
    assert listed["brokers"] == [{"id": 1, "name": broker.bootstrap}]
    assert listed["controllerid"] == 1
    [found] = [each for each in listed["topics"] if each["topic"] == wide_topic]
    assert [each["partition"] for each in found["partitions"]] == [0, 1, 2, 3]
    assert {each["leader"] for each in found["partitions"]} == {1}
    [only] = json.loads(run("-L", "-J", "-t", wide_topic))["topics"]
    assert only == found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_go_in_and_come_out(run: Kcat, topic: str, codec: str) -> None:
    lines = [f"k{each}:v{each}" for each in range(20)]
    run("-P", "-t", topic, "-K:", "-z", codec, "-H", "h=x", given="\n".join(lines))
    output = run("-C", "-t", topic, "-e", "-q", "-f", r"%p %o %k:%s %h\n")
    assert output.splitlines() == [f"0 {each} k{each}:v{each} h=x" for each in range(20)]


def test_consuming_starts_at_an_offset_counts_and_goes_back_from_the_end(run: Kcat, topic: str) -> None:
    run("-P", "-t", topic, given="a\nb\nc\nd\n")
    assert run("-C", "-t", topic, "-p", "0", "-o", "1", "-c", "2", "-q") == "b\nc\n"
    assert run("-C", "-t", topic, "-p", "0", "-o", "-1", "-e", "-q") == "d\n"
    assert run("-C", "-t", topic, "-p", "0", "-o", "end", "-e", "-q") == ""


def test_offsets_are_queried_by_time(run: Kcat, broker: Broker, topic: str) -> None:
    for stamp in (HOUR_AGO, HOUR_AGO + 1_000):
        produce(broker, topic, [b"v"], timestamp=stamp)
    assert run("-Q", "-t", f"{topic}:0:{HOUR_AGO + 1}") == f"{topic} [0] offset 1\n"
    assert run("-Q", "-t", f"{topic}:0:-1") == f"{topic} [0] offset 2\n"
    assert run("-Q", "-t", f"{topic}:0:-2") == f"{topic} [0] offset 0\n"
    from_then = run("-C", "-t", topic, "-o", f"s@{HOUR_AGO + 500}", "-e", "-q", "-f", r"%T %o\n")
    assert from_then == f"{HOUR_AGO + 1_000} 1\n"


def test_a_group_consumes(run: Kcat, wide_topic: str, group: str) -> None:
    for partition in range(4):
        run("-P", "-t", wide_topic, "-p", str(partition), given=f"{partition}\n")
    reset = ("-X", "auto.offset.reset=earliest", "-q", "-e")
    assert sorted(run("-G", group, *reset, wide_topic).split()) == ["0", "1", "2", "3"]
    assert run("-G", group, *reset, wide_topic) == ""


def test_producing_creates_the_topic(run: Kcat) -> None:
    name = unique("automatic")
    run("-P", "-t", name, given="v\n")
    assert run("-C", "-t", name, "-e", "-q") == "v\n"
