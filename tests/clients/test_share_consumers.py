"""Java's share consumers: a program of our own, Kafka's console and verifiable tools, and its tool for groups."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from headwater.testing.jars import BRIEF, KAFKA_4_3

from .brokers import Broker, unique
from .confluent import SECONDS, produce
from .raw import Raw
from .share import begin_at
from .test_transactions_confluent import send, transactional
from .tools import CONSOLE_CONSUMER, GROUPS, SHARE_CONSUMER, SHARE_GROUPS, VERIFIABLE_SHARE_CONSUMER, Tools

pytestmark = pytest.mark.real


def test_members_accept_release_reject_renew_and_forget(
    java: str, broker: Broker, topic: str, group: str
) -> None:
    program = Path(__file__).with_name("ShareQueue.java")
    done = subprocess.run(
        (
            *(java, *BRIEF, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", KAFKA_4_3.classpath()),
            *(str(program), broker.bootstrap, topic, group),
        ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "taken [a0*1, a1*1, a2*1, a3*1, a4*1, a5*1]",
        "committed ok",
        "again [a1*2, a4*2]",
        "committed ok",
        "limit [b*1, b*2, b*3, b*4, b*5] then c ok",
        "shared true twice []",
        "held [e*1]",
        "expired e again",
        "too late InvalidRecordStateException",
        "in time ok",
        "left [f*1]",
        "found [f*2]",
        "renewed ok",
        "accepted ok",
        "implicit [g0, g1, g2] ok",
    ]


def test_the_console_and_the_verifiable_consumer_take_turns(
    tools: Tools, broker: Broker, raw: Raw, topic: str, group: str
) -> None:
    begin_at(raw, group, topic)
    produce(broker, topic, [b"a", b"b", b"c"])
    printed = ("--formatter-property", "print.delivery=true", "--formatter-property", "print.offset=true")
    arguments = ("--topic", topic, "--group", group, "--max-messages", "3", *printed)
    released = tools.run(SHARE_CONSUMER, *arguments, "--release")
    assert released.lines == [f"Offset:{i}\tDelivery:1\t{value}" for i, value in enumerate("abc")]
    taken = tools.run(SHARE_CONSUMER, *arguments)
    assert taken.lines == [f"Offset:{i}\tDelivery:2\t{value}" for i, value in enumerate("abc")]
    produce(broker, topic, [b"%d" % each for each in range(20)])
    verified = tools.run(
        VERIFIABLE_SHARE_CONSUMER,
        *("--topic", topic, "--group-id", group, "--max-messages", "20"),
        *("--acknowledgement-mode", "sync", "--verbose"),
    )
    assert [each["offset"] for each in verified.events("record_data")] == list(range(3, 23))
    acknowledged = verified.events("offsets_acknowledged")
    assert (sum(each["count"] for each in acknowledged), acknowledged[0]["success"]) == (20, True)
    stored = tools.run(
        CONSOLE_CONSUMER,
        *("--topic=__share_group_state", "--partition=0", "--offset=earliest", "--timeout-ms=2000"),
        "--formatter=org.apache.kafka.tools.consumer.group.share.ShareGroupStateMessageFormatter",
        "--command-property=exclude.internal.topics=false",
    )
    records = json.loads(f"[{stored.output.replace('}{', '},{')}]")  # it prints one after the other
    starts = [
        record["value"]["data"]["startOffset"]
        for record in records
        if record["value"] is not None and record["key"]["data"]["groupId"] == group
    ]
    # Kafka writes the states of records, and the start offset that they had before.
    assert starts[0] == 0
    assert starts == sorted(starts)
    assert starts[-1] == 23 or broker.name == "kafka"


def test_records_of_transactions_are_taken_whether_committed_or_not(
    tools: Tools, broker: Broker, raw: Raw, topic: str, group: str
) -> None:
    begin_at(raw, group, topic)
    made = transactional(broker, unique("txn"))
    for number in range(4):
        made.begin_transaction()
        send(made, topic, b"%d" % number)
        made.abort_transaction(SECONDS) if number % 2 else made.commit_transaction(SECONDS)
    produce(broker, topic, [b"plain"])
    taken = tools.run(SHARE_CONSUMER, "--topic", topic, "--group", group, "--max-messages", "5")
    assert taken.lines == ["0", "1", "2", "3", "plain"]
    # The markers between them are gaps, which the consumer acknowledges as such.
    asked = [{"group_id": group, "topics": [{"topic_name": topic, "partitions": [0]}]}]
    [[part]] = [
        each.partitions for each in raw.call("describe_share_group_offsets", 1, groups=asked).groups[0].topics
    ]
    assert part.lag == 0


def test_kafka_share_groups_describes_resets_and_deletes(
    tools: Tools, broker: Broker, topic: str, group: str
) -> None:
    where = ("--group", group, "--topic", topic)
    produce(broker, topic, [b"%d" % each for each in range(5)])
    [reset] = tools.run(SHARE_GROUPS, "--reset-offsets", *where, "--to-earliest", "--execute").rows()
    assert (reset["TOPIC"], reset["NEW-OFFSET"]) == (topic, "0")
    process = tools.start(SHARE_CONSUMER, "--topic", topic, "--group", group)
    assert process.stdout is not None
    try:
        assert [process.stdout.readline() for _ in range(5)] == [f"{each}\n" for each in range(5)]
        [member] = tools.run(SHARE_GROUPS, "--describe", "--group", group, "--members").rows()
        assert (member["HOST"], member["#PARTITIONS"]) == ("/127.0.0.1", "1")
        refused = tools.try_(SHARE_GROUPS, "--delete", "--group", group)
        assert "is not EMPTY" in refused.output + refused.errors
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()
    [row] = tools.run(SHARE_GROUPS, "--describe", "--group", group).rows()
    assert (row["TOPIC"], row["LAG"]) == (topic, "0")
    assert (
        row["START-OFFSET"] == "5" or broker.name == "kafka"
    )  # which tells it with the next acknowledgement
    assert [group, "Share", "share"] in [line.split() for line in tools.run(GROUPS, "--list").lines]
    deleted = tools.run(SHARE_GROUPS, "--delete-offsets", *where)
    assert deleted.lines[-1].split() == [topic, "Successful"]
    gone = tools.run(SHARE_GROUPS, "--delete", "--group", group)
    assert f"Deletion of requested share groups ('{group}') was successful." in gone.output
