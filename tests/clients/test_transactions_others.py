"""Transactions of aiokafka and kafka-python, and of Kafka's own copier and administration tool."""

from __future__ import annotations

import asyncio
import json
import warnings

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import ProducerFenced

from .brokers import Broker, eventually, unique
from .confluent import produce
from .test_transactions_confluent import seen, send, transactional
from .tools import TOOLS, Ended, Tools, run_tool

with warnings.catch_warnings():
    # It reads its schemas, when it is imported, with a function that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaProducer

pytestmark = [pytest.mark.real, pytest.mark.filterwarnings("ignore::DeprecationWarning:kafka")]

COPIER = f"{TOOLS}.TransactionalMessageCopier"
TRANSACTIONS = f"{TOOLS}.TransactionsCommand"


async def test_aiokafka_commits_and_aborts(broker: Broker, topic: str) -> None:
    made = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=unique("txn"))
    async with made:
        for number in range(4):
            await made.begin_transaction()
            await made.send_and_wait(topic, b"%d" % number, partition=0)
            await (made.abort_transaction() if number % 2 else made.commit_transaction())
    found = await asyncio.to_thread(
        eventually, lambda: seen(broker, topic, committed=True), lambda found: len(found) == 2
    )
    assert found == [b"0", b"2"]


async def test_aiokafka_commits_offsets_and_is_fenced(broker: Broker, topic: str, group: str) -> None:
    name = unique("txn")
    partition = TopicPartition(topic, 0)
    first = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=name)
    second = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=name)
    reader = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False)
    async with first, reader:
        reader.assign([partition])
        async with first.transaction():
            await first.send_and_wait(topic, b"in", partition=0)
            await first.send_offsets_to_transaction({partition: 7}, group)
        # Kafka answers the commit before its marker is with the group, and the offset counts from then on.
        for _ in range(200):
            committed = await reader.committed(partition)
            if committed is not None:
                break
            await asyncio.sleep(0.05)
        assert committed == 7
        async with second:
            with pytest.raises(ProducerFenced):
                async with first.transaction():
                    await first.send_and_wait(topic, b"late", partition=0)


def test_kafka_python_commits_and_aborts(broker: Broker, topic: str) -> None:
    made = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=unique("txn"))
    try:
        made.init_transactions()
        for number in range(4):
            made.begin_transaction()
            made.send(topic, b"%d" % number, partition=0).get(20)
            if number % 2:
                made.abort_transaction()
            else:
                made.commit_transaction()
    finally:
        made.close()
    found = eventually(lambda: seen(broker, topic, committed=True), lambda found: len(found) == 2)
    assert found == [b"0", b"2"]


@pytest.mark.parametrize("older", [False, True], ids=["4.3.0", "3.9.2"])
def test_the_copier_copies_each_record_once(
    request: pytest.FixtureRequest, broker: Broker, topic: str, group: str, older: bool
) -> None:
    tools: Tools = request.getfixturevalue("older_tools" if older else "tools")
    target = unique("copy")
    values = [b"%d" % number for number in range(2000)]
    produce(broker, topic, values, partition=0)
    done = run_tool(
        tools.jars,
        COPIER,
        f"--broker-list={broker.bootstrap}",
        f"--input-topic={topic}",
        "--input-partition=0",
        f"--output-topic={target}",
        f"--consumer-group={group}",
        f"--transactional-id={unique('copier')}",
        "--transaction-size=250",
        "--max-messages=2000",
        "--enable-random-aborts",
    )
    assert done.status == 0, done
    found = eventually(lambda: seen(broker, target, committed=True), lambda found: len(found) >= 2000)
    assert found == values


def administer(tools: Tools, *arguments: str) -> Ended:
    """Run the transactions tool, which takes the broker's address first."""
    ended = run_tool(tools.jars, TRANSACTIONS, "--bootstrap-server", tools.broker.bootstrap, *arguments)
    assert ended.status == 0, ended
    return ended


def test_the_transactions_tool_finds_and_describes(broker: Broker, topic: str, tools: Tools) -> None:
    name = unique("txn")
    made = transactional(broker, name)
    made.begin_transaction()
    send(made, topic, b"open")
    listed = {row["TransactionalId"]: row for row in administer(tools, "list").rows()}
    assert listed[name]["TransactionState"] == "Ongoing"
    [described] = administer(tools, "describe", "--transactional-id", name).rows()
    assert described["TransactionalId"] == name
    assert described["TransactionState"] == "Ongoing"
    assert described["ProducerId"] == listed[name]["ProducerId"]
    assert f"{topic}-0" in administer(tools, "describe", "--transactional-id", name).output
    [producer] = administer(tools, "describe-producers", "--topic", topic, "--partition", "0").rows()
    assert producer["ProducerId"] == listed[name]["ProducerId"]
    assert producer["CurrentTransactionStartOffset"] == "0"
    administer(tools, "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    plain = transactional(broker, unique("txn"))
    plain.begin_transaction()
    send(plain, topic, b"after it")
    plain.commit_transaction(20)
    assert eventually(lambda: seen(broker, topic, committed=True), bool) == [b"after it"]


def test_kafkas_formatter_reads_the_coordinators_topic(broker: Broker, topic: str, tools: Tools) -> None:
    name = unique("txn")
    made = transactional(broker, name)
    made.begin_transaction()
    send(made, topic, b"in")
    made.commit_transaction(20)
    output = tools.run(
        f"{TOOLS}.consumer.ConsoleConsumer",
        "--topic=__transaction_state",
        "--formatter=org.apache.kafka.tools.consumer.TransactionLogMessageFormatter",
        "--from-beginning",
        "--timeout-ms=4000",
        "--command-property=exclude.internal.topics=false",
    ).output
    records = json.loads(f"[{output.replace('}{', '},{')}]")  # it prints one after the other
    states = [
        record["value"]["data"]["transactionStatus"]
        for record in records
        if record["key"]["data"]["transactionalId"] == name
    ]
    # Empty, Ongoing, PrepareCommit, CompleteCommit
    assert states == [0, 1, 2, 4]
