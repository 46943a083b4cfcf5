"""Kafka's Java clients, through its console and verifiable tools, and its tool for groups."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pytest
from confluent_kafka import OFFSET_INVALID, TopicPartition

from headwater.testing.process import terminate

from .brokers import Broker
from .confluent import SECONDS, consumer, produce, read, take
from .tools import (
    CONSOLE_CONSUMER,
    CONSOLE_PRODUCER,
    CONSUMER_GROUPS,
    GET_OFFSETS,
    GROUPS,
    TOPICS,
    VERIFIABLE_CONSUMER,
    VERIFIABLE_PRODUCER,
    Tools,
)

pytestmark = pytest.mark.real

PRINTED = ("partition", "offset", "key", "headers")


@contextmanager
def running(tools: Tools, tool: str, *arguments: str) -> Iterator[IO[str]]:
    """Run a tool inside the block, giving its output."""
    process: subprocess.Popen[str] = tools.start(tool, *arguments)
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        terminate(process, seconds=15)
        process.stdout.close()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_console_producer_writes_with_every_codec(
    tools: Tools, broker: Broker, topic: str, codec: str
) -> None:
    lines = "".join(f"h:x\tk{each}\tv{each}\n" for each in range(20))
    reader = ("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true")
    tools.run(CONSOLE_PRODUCER, "--topic", topic, "--compression-codec", codec, *reader, given=lines)
    messages = read(broker, topic, 20)
    assert [(message.key(), message.value()) for message in messages] == [
        (b"k%d" % each, b"v%d" % each) for each in range(20)
    ]
    assert {tuple(message.headers() or []) for message in messages} == {(("h", b"x"),)}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_console_consumer_reads_every_codec_and_commits(
    tools: Tools, broker: Broker, topic: str, group: str, protocol: str
) -> None:
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        produce(
            broker, topic, [codec.encode()], config={"compression.type": codec}, key=b"k", headers={"h": b"x"}
        )
    printed = [word for name in PRINTED for word in ("--formatter-property", f"print.{name}=true")]
    arguments = ("--topic", topic, "--group", group, "--command-property", f"group.protocol={protocol}")
    output = tools.run(CONSOLE_CONSUMER, *arguments, *printed, "--from-beginning", "--max-messages", "5")
    assert output.lines == [
        f"Partition:0\tOffset:{offset}\th:x\tk\t{codec}"
        for offset, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd"))
    ]
    produce(broker, topic, [b"next"])
    assert tools.run(CONSOLE_CONSUMER, *arguments, "--max-messages", "1").lines == ["next"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_verifiable_tools_agree(tools: Tools, wide_topic: str, group: str, protocol: str) -> None:
    produced = tools.run(
        VERIFIABLE_PRODUCER, "--topic", wide_topic, "--max-messages", "500", "--repeating-keys", "50"
    )
    acknowledged = produced.events("producer_send_success")
    assert len(acknowledged) == 500
    assert produced.events("tool_data")[0]["acked"] == 500
    consumed = tools.run(
        VERIFIABLE_CONSUMER,
        *("--topic", wide_topic, "--group-id", group, "--group-protocol", protocol),
        *("--max-messages", "500", "--reset-policy", "earliest", "--verbose"),
    )
    seen = [(each["partition"], each["offset"], each["value"]) for each in consumed.events("record_data")]
    assert sorted(seen) == sorted((each["partition"], each["offset"], each["value"]) for each in acknowledged)
    assert len(consumed.events("partitions_assigned")[0]["partitions"]) == 4
    assert all(each["success"] for each in consumed.events("offsets_committed"))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_kafka_consumer_groups_describes_a_group_at_work(
    tools: Tools, broker: Broker, wide_topic: str, group: str, protocol: str
) -> None:
    produce(broker, wide_topic, [b"a", b"b"], partition=2)
    with consumer(broker, group, group_protocol=protocol, client_id="me") as made:
        made.subscribe([wide_topic])
        first, _second = take(made, 2)
        made.commit(message=first, asynchronous=False)
        rows = tools.run(CONSUMER_GROUPS, "--describe", "--group", group).rows()
        [busy] = [row for row in rows if row["PARTITION"] == "2"]
        assert (busy["CURRENT-OFFSET"], busy["LOG-END-OFFSET"], busy["LAG"]) == ("1", "2", "1")
        assert (busy["HOST"], busy["CLIENT-ID"]) == ("/127.0.0.1", "me")
        [member] = tools.run(CONSUMER_GROUPS, "--describe", "--group", group, "--members", "--verbose").rows()
        assert (member["CLIENT-ID"], member["#PARTITIONS"]) == ("me", "4")
        assert f"{wide_topic}:0,1,2,3" in member.values()
        state = tools.run(CONSUMER_GROUPS, "--describe", "--group", group, "--state")
        assigner = {"classic": "range", "consumer": "uniform"}[protocol]
        assert state.lines[-1].split() == [group, broker.bootstrap, "(1)", assigner, "Stable", "1"]
        refused = tools.run(CONSUMER_GROUPS, "--delete", "--group", group)
        assert "GroupNotEmptyException" in refused.output
    [listed] = [row for row in tools.run(GROUPS, "--list").rows() if row["GROUP"] == group]
    assert (listed["TYPE"], listed["PROTOCOL"]) == (protocol.capitalize(), "consumer")


def test_kafka_consumer_groups_moves_and_deletes_offsets(
    tools: Tools, broker: Broker, topic: str, group: str
) -> None:
    produce(broker, topic, [b"%d" % each for each in range(5)])
    with consumer(broker, group) as made:
        made.subscribe([topic])
        *_earlier, last = take(made, 5)
        made.commit(message=last, asynchronous=False)
    where = ("--group", group, "--topic", topic)
    [reset] = tools.run(CONSUMER_GROUPS, "--reset-offsets", *where, "--to-offset", "2", "--execute").rows()
    assert reset["NEW-OFFSET"] == "2"
    with consumer(broker, group) as made:
        made.subscribe([topic])
        assert [message.offset() for message in take(made, 3)] == [2, 3, 4]
    [reset] = tools.run(CONSUMER_GROUPS, "--reset-offsets", *where, "--shift-by", "-1", "--execute").rows()
    assert reset["NEW-OFFSET"] == "1"
    [row] = tools.run(CONSUMER_GROUPS, "--describe", "--group", group).rows()
    assert (row["CURRENT-OFFSET"], row["LAG"], row["CONSUMER-ID"]) == ("1", "4", "-")
    deleted = tools.run(CONSUMER_GROUPS, "--delete-offsets", *where)
    assert deleted.lines[-1].split() == [topic, "0", "Successful"]
    with consumer(broker, group) as made:
        [left] = made.committed([TopicPartition(topic, 0)], timeout=SECONDS)
    assert left.offset == OFFSET_INVALID


def test_kafka_consumer_groups_lists_states_and_deletes(
    tools: Tools, broker: Broker, topic: str, group: str
) -> None:
    produce(broker, topic, [b"v"])
    with consumer(broker, group) as made:
        made.subscribe([topic])
        [message] = take(made, 1)
        made.commit(message=message, asynchronous=False)
    rows = tools.run(CONSUMER_GROUPS, "--list", "--state", "Empty").rows()
    assert {"GROUP": group, "STATE": "Empty"} in rows
    deleted = tools.run(CONSUMER_GROUPS, "--delete", "--group", group)
    assert f"Deletion of requested consumer groups ('{group}') was successful." in deleted.output
    gone = tools.try_(CONSUMER_GROUPS, "--describe", "--group", group)
    assert f"GroupIdNotFoundException: Group {group} not found." in gone.output


def test_two_java_consumers_share_the_partitions(tools: Tools, wide_topic: str, group: str) -> None:
    def assigned(output: IO[str]) -> set[int]:
        """Read events until one assigns partitions."""
        while event := json.loads(output.readline()):
            if event["name"] == "partitions_assigned" and event["partitions"]:
                return {each["partition"] for each in event["partitions"]}
        raise AssertionError("unreachable: an event is never empty")

    arguments = ("--topic", wide_topic, "--group-id", group, "--session-timeout", "6000")
    with running(tools, VERIFIABLE_CONSUMER, *arguments) as first:
        assert assigned(first) == {0, 1, 2, 3}
        with running(tools, VERIFIABLE_CONSUMER, *arguments) as second:
            assert assigned(first) | assigned(second) == {0, 1, 2, 3}
        assert assigned(first) == {0, 1, 2, 3}


def test_the_clients_that_spark_uses_work_too(
    older_tools: Tools, broker: Broker, wide_topic: str, group: str
) -> None:
    tools = older_tools
    arguments = ("--topic", wide_topic, "--max-messages", "200", "--repeating-keys", "20")
    produced = tools.run(VERIFIABLE_PRODUCER, *arguments).events("producer_send_success")
    assert len(produced) == 200
    for protocol in ("classic", "consumer"):
        consumed = tools.run(
            VERIFIABLE_CONSUMER,
            *("--topic", wide_topic, "--group-id", f"{group}-{protocol}", "--group-protocol", protocol),
            *("--max-messages", "200", "--reset-policy", "earliest", "--verbose"),
        ).events("record_data")
        assert sorted((each["partition"], each["offset"]) for each in consumed) == sorted(
            (each["partition"], each["offset"]) for each in produced
        )
    assert wide_topic in tools.run(TOPICS, "--list").lines
    assert "PartitionCount: 4" in tools.run(TOPICS, "--describe", "--topic", wide_topic).lines[0]
    ends = [line.split(":") for line in tools.run(GET_OFFSETS, "--topic", wide_topic).lines]
    assert sum(int(end) for _topic, _partition, end in ends) == 200
    rows = tools.run(CONSUMER_GROUPS, "--describe", "--group", f"{group}-classic").rows()
    assert {row["LAG"] for row in rows} == {"0"}


def test_the_clients_that_spark_uses_read_and_write_every_codec(
    older_tools: Tools, broker: Broker, topic: str
) -> None:
    codecs = ("gzip", "snappy", "lz4", "zstd")
    for number, codec in enumerate(codecs):
        produce(broker, topic, [codec.encode()] * 10, config={"compression.type": codec})
        config = older_tools.scratch / "producer.properties"
        config.write_text(f"compression.type={codec}\nlinger.ms=50\n")
        arguments = ("--max-messages", "10", "--value-prefix", str(number), "--producer.config", str(config))
        older_tools.run(VERIFIABLE_PRODUCER, "--topic", topic, *arguments)
    expected = []
    for number, codec in enumerate(codecs):
        expected += [codec] * 10 + [f"{number}.{each}" for each in range(10)]
    output = older_tools.run(CONSOLE_CONSUMER, "--topic", topic, "--from-beginning", "--max-messages", "80")
    assert output.lines == expected
    assert [message.value() for message in read(broker, topic, 80)] == [each.encode() for each in expected]
