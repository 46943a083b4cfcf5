"""Records that a store cannot read, on a real broker: dead letters of the application, whatever is killed."""

from __future__ import annotations

import base64
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from headwater.client.topic_settings import DEAD_LETTERS, TABLE
from headwater.testing.process import BrokerProcess

from .running import listed, run, started

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

BAD = [
    (b"2", b"{not json", "not JSON"),
    (b"3", b'{"name":"Cyd"}', "the row has no id, which is its key"),
    (b"4", b'["a", "list"]', "the row is no JSON object"),
    (b"5", b'{"id":5,"name":"Eve"} and more', "there is more behind the object"),
]


@pytest.fixture
def app_file(tmp_path: Path, table: str) -> Path:
    path = tmp_path / "shop.py"
    path.write_text(
        "from headwater import App\n"
        f'app = App("shop{table}")\n'
        f'app.table("{table}", "id bigint, name string", key="id", partitions=1)\n'
        f'app.index("words", of="{table}", text="name")\n'
        f'app.cache("names", of="{table}")\n'
    )
    return path


def send(broker: BrokerProcess, topic: str, *records: tuple[bytes, bytes | None]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
    for key, value in records:
        producer.produce(topic, value, key, partition=0, headers=[("from", b"test")])
    assert producer.flush(20) == 0


def letters(broker: BrokerProcess, table: str) -> list[tuple[str, dict[str, Any]]]:
    """Return all letters as a reader of committed records sees them, repetitions too."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "letters", "isolation.level": "read_committed"}
    )
    partition = TopicPartition(f"shop{table}.dead", 0, 0)
    try:
        end = consumer.get_watermark_offsets(partition, timeout=20)[1]
        consumer.assign([partition])
        messages = consumer.consume(end, timeout=20)
    finally:
        consumer.close()
    return [((message.key() or b"").decode(), json.loads(message.value() or b"null")) for message in messages]


def test_what_a_store_cannot_read_is_set_aside_and_sent_again(
    broker: BrokerProcess, app_file: Path, table: str, tmp_path: Path
) -> None:
    address, data = f"--broker=kafka://{broker.bootstrap}", f"--data={tmp_path}"
    run("topics", "create", table, "--partitions=1", *settings(), address)
    send(broker, table, (b"1", b'{"id":1,"name":"Ann"}'), *((key, value) for key, value, _ in BAD))
    send(broker, table, (b"6", b'{"id":6,"name":"Fay"}'))
    done = run("derived", "run", app_file, address, data, "--once")
    assert f"words: {table}-0 at offset 1 cannot be read, and is in shop{table}.dead: not JSON" in done.stderr
    stores = listed(app_file, address, data)
    assert [(row["rows"], row["behind"], row["unreadable"]) for row in stores] == [(2, 0, 4), (2, 0, 4)]

    found = letters(broker, table)
    assert {key for key, _ in found} == {f"{table}/0/{offset}" for offset in range(1, 5)}
    assert len(found) == 8  # the two stores'
    for offset, (key, value, reason) in enumerate(BAD, start=1):
        said = dict(found)[f"{table}/0/{offset}"]
        assert reason in said["reason"]
        assert said["reason"].split(":")[0] in ("words", "names")
        assert (said["topic"], said["partition"], said["offset"]) == (table, 0, offset)
        assert (base64.b64decode(said["key"]), base64.b64decode(said["value"])) == (key, value)
        assert said["headers"] == [["from", base64.b64encode(b"test").decode()]]
        assert said["timestamp"] > 1_700_000_000_000
    listed_dead = [
        json.loads(line) for line in run("dead", "list", f"shop{table}", address).stdout.splitlines()
    ]
    assert [row["offset"] for row in listed_dead] == [1, 2, 3, 4]

    run("dead", "redrive", f"shop{table}", address, "--reason=no id", "--yes")
    assert run("dead", "list", f"shop{table}", address, "--reason=no id").stdout == ""
    run("derived", "run", app_file, address, data, "--once")  # still nothing that could be read
    [again] = run("dead", "list", f"shop{table}", address, "--reason=no id").stdout.splitlines()
    assert json.loads(again)["offset"] == 6


def settings() -> list[str]:
    return [f"--config={name}={value}" for name, value in TABLE.items()]


@pytest.mark.parametrize("where", ["after_letters", "before_apply", "after_apply"])
def test_killed_between_the_letter_and_the_position(
    broker: BrokerProcess, app_file: Path, table: str, tmp_path: Path, where: str
) -> None:
    """The letter is there at least once, always with the same key, and the last word on the record is one letter."""
    address, data = f"--broker=kafka://{broker.bootstrap}", f"--data={tmp_path}"
    app_file.write_text("\n".join(line for line in app_file.read_text().splitlines() if "index" not in line))
    run("topics", "create", table, "--partitions=1", *settings(), address)
    send(broker, table, (b"1", b'{"id":1,"name":"Ann"}'), (b"2", b"{not json"), (b"3", b'{"id":3}'))
    command = ("derived", "run", app_file, address, data, "--once")
    with started(*command, HEADWATER_KILL_AT=f"derived.{where}") as process:
        assert process.wait(60) == -signal.SIGKILL
    assert [key for key, _ in letters(broker, table)] == [f"{table}/0/1"]
    run(*command)
    wanted = 1 if where == "after_apply" else 2
    assert [key for key, _ in letters(broker, table)] == [f"{table}/0/1"] * wanted
    assert len(run("dead", "list", f"shop{table}", address).stdout.splitlines()) == 1
    [stored] = listed(app_file, address, data)
    assert (stored["rows"], stored["behind"], stored["unreadable"]) == (2, 0, 1)


def test_a_record_of_many_megabytes_fits_into_its_letter(
    broker: BrokerProcess, app_file: Path, table: str, tmp_path: Path
) -> None:
    address, data = f"--broker=kafka://{broker.bootstrap}", f"--data={tmp_path}"
    run("topics", "create", table, "--partitions=1", *settings(), address)
    large = b"x" * 5_000_000
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.max.bytes": 10_000_000})
    producer.produce(table, large, b"1", partition=0)
    assert producer.flush(20) == 0
    run("derived", "run", app_file, address, data, "--once")
    [(_, said), _] = letters(broker, table)
    assert base64.b64decode(said["value"]) == large
    described = run("topics", "describe", f"shop{table}.dead", address).stdout
    assert DEAD_LETTERS["max.message.bytes"] in described


def test_a_dead_letter_topic_that_is_too_small_is_named(
    broker: BrokerProcess, app_file: Path, table: str, tmp_path: Path
) -> None:
    address, data = f"--broker=kafka://{broker.bootstrap}", f"--data={tmp_path}"
    run("topics", "create", table, "--partitions=1", *settings(), address)
    run("topics", "create", f"shop{table}.dead", "--partitions=1", "-c", "max.message.bytes=1000", address)
    send(broker, table, (b"1", b"x" * 2000))
    failed = run("derived", "run", app_file, address, data, "--once", status=1)
    assert f"headwater topics alter shop{table}.dead -c max.message.bytes=" in failed.output
