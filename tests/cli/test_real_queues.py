"""`headwater queues`, `exchanges`, `bindings` and `vhosts` against real brokers."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from amqp_clients.brokers import Broker, broker_of, new_process
from headwater.client.amqp import Channel, Connection
from headwater.client.amqp.errors import Refused
from headwater.core.urls import AmqpUrl
from needs import need_rabbitmq

from .shell import InProcess, Shell, eventually

pytestmark = pytest.mark.real


@pytest.fixture(scope="module", params=["headwater", "rabbitmq"], ids=["on-headwater", "on-rabbitmq"])
def queue_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    if request.param == "rabbitmq":
        need_rabbitmq()
    with new_process(request.param, tmp_path_factory.mktemp(request.param) / "data") as process:
        yield broker_of(process)


@pytest.fixture
def shell(queue_broker: Broker) -> Shell:
    return InProcess("", queue_broker.url())


@pytest.fixture
def channel(queue_broker: Broker) -> Iterator[Channel]:
    with Connection(AmqpUrl.parse(queue_broker.url())) as connection:
        yield connection.channel()


@pytest.fixture
def queue(shell: Shell, name: str) -> str:
    """A queue with the messages 0 to 4."""
    done = shell.run("queues", "declare", name)
    assert (done.returncode, done.stderr) == (0, f"Declared {name}.\n")
    done = shell.run("queues", "publish", name, given="0\n1\n2\n3\n4\n")
    assert done.stderr.startswith(f"Published 5 messages to {name} in "), done.stderr
    return name


def _bodies(shell: Shell, name: str, *words: str) -> list[Any]:
    return [row["body"] for row in shell.lines("queues", "get", name, "--count", "1000", *words)]


def test_get_leaves_messages_where_they_are_and_take_takes_them(shell: Shell, queue: str) -> None:
    [first] = shell.lines("queues", "get", queue)
    assert first == {
        "queue": queue,
        "exchange": "",
        "routing_key": queue,
        "redelivered": False,
        "properties": {"delivery_mode": 2},
        "headers": {},
        "body": "0",
    }
    assert _bodies(shell, queue) == ["0", "1", "2", "3", "4"]
    [first] = shell.lines("queues", "get", queue)
    assert first["redelivered"]
    shown = shell.terminal("queues", "get", queue, "--count", "2")
    assert "redelivered" in shown
    assert queue in shown
    taken = shell.lines("queues", "get", queue, "--count", "3", "--take")
    assert [row["body"] for row in taken] == ["0", "1", "2"]
    assert _bodies(shell, queue, "--take") == ["3", "4"]
    done = shell.run("queues", "get", queue)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"{queue} is empty.\n")


def test_what_get_prints_publish_reads(shell: Shell, name: str) -> None:
    shell.run("queues", "declare", name)
    line = {
        "body": {"base64": "/w=="},
        "headers": {"n": 1, "list": ["a", None, True], "raw": {"base64": "/w=="}, "x": {"y": 1.5}},
        "properties": {
            "content_type": "text/plain",
            "correlation_id": "c",
            "delivery_mode": 1,
            "message_id": "m",
            "priority": 3,
            "timestamp": 12,
        },
    }
    assert shell.run("queues", "publish", name, "--json", given=json.dumps(line)).returncode == 0
    printed = shell.run("queues", "get", name, "--take").stdout
    assert {key: json.loads(printed)[key] for key in line} == line
    assert shell.run("queues", "publish", name, "--json", given=printed).returncode == 0
    assert shell.run("queues", "get", name, "--take").stdout == printed


def test_headers_and_transience_for_all(shell: Shell, name: str) -> None:
    shell.run("queues", "declare", name)
    shell.run("queues", "publish", name, "--transient", "-H", "n=1", "-H", "text=a", given="one\n")
    [row] = shell.lines("queues", "get", name)
    assert (row["headers"], row["properties"]) == ({"n": 1, "text": "a"}, {"delivery_mode": 1})


def test_purge_and_delete(shell: Shell, queue: str) -> None:
    assert shell.run("queues", "purge", queue, given="n\n").returncode == 1
    done = shell.run("queues", "purge", queue, "--yes")
    assert (done.returncode, done.stderr) == (0, f"Dropped 5 messages of {queue}.\n")
    shell.run("queues", "publish", queue, given="one\n")
    assert "not empty" in shell.error("queues", "delete", queue, "--if-empty", "--yes")
    done = shell.run("queues", "delete", queue, given="y\n")
    assert done.returncode == 0
    assert f"Delete {queue} with 1 messages? [y/N]: " in done.stderr
    assert done.stderr.endswith(f"Deleted {queue}.\n")
    assert shell.error("queues", "delete", queue, "--yes") == f"there is no queue named {queue}"


def test_what_is_declared_twice_must_be_the_same(shell: Shell, name: str) -> None:
    words = ["queues", "declare", name, "-a", "x-max-length=10", "-a", "x-overflow=reject-publish"]
    assert shell.run(*words).returncode == 0
    assert shell.run(*words).returncode == 0
    error = shell.error("queues", "declare", name)
    assert "inequivalent arg 'x-max-length'" in error
    assert error.endswith("declare it as it is, or delete it first")
    refused = shell.error("queues", "declare", f"{name}-2", "-a", "x-message-ttl=soon")
    assert "x-message-ttl" in refused


def test_a_full_queue_is_said(shell: Shell, name: str) -> None:
    shell.run("queues", "declare", name, "-a", "x-max-length=2", "-a", "x-overflow=reject-publish")
    assert "2 messages were refused" in shell.error("queues", "publish", name, given="1\n2\n3\n4\n")
    assert _bodies(shell, name) == ["1", "2"]


@pytest.mark.parametrize("command", ["publish", "get", "purge"])
def test_no_such_queue(shell: Shell, command: str, name: str) -> None:
    more = ["--yes"] if command == "purge" else []
    assert shell.error("queues", command, name, *more) == f"there is no queue named {name}"


def test_exchanges_and_bindings(shell: Shell, name: str) -> None:
    source, between = f"{name}-source", f"{name}-between"
    assert shell.run("exchanges", "declare", source, "--type", "topic").stderr == f"Declared {source}.\n"
    shell.run("exchanges", "declare", between, "--type", "fanout", "--internal")
    shell.run("queues", "declare", name)
    bound = shell.run("bindings", "add", source, between, "--key", "orders.*", "--to-exchange")
    assert (bound.returncode, bound.stderr) == (0, f"Bound {between} to {source}.\n")
    assert shell.run("bindings", "add", between, name).returncode == 0
    done = shell.run("exchanges", "publish", source, "--key", "orders.eu", given="one\ntwo\n")
    assert done.stderr.startswith(f"Published 2 messages to the exchange {source} in ")
    lines = '{"body": "three", "routing_key": "orders.us"}\n'
    assert shell.run("exchanges", "publish", source, "--json", given=lines).returncode == 0
    rows = shell.lines("queues", "get", name, "--count", "10", "--take")
    assert [(row["exchange"], row["routing_key"], row["body"]) for row in rows] == [
        (source, "orders.eu", "one"),
        (source, "orders.eu", "two"),
        (source, "orders.us", "three"),
    ]
    error = shell.error("exchanges", "publish", source, "--key", "other", given="lost\n")
    assert error.startswith(f"no queue is bound to exchange '{source}' for the routing key 'other'")
    removed = shell.run("bindings", "remove", source, between, "--key", "orders.*", "--to-exchange")
    assert removed.returncode == 0
    assert shell.run("exchanges", "publish", source, "--key", "orders.eu", given="x\n").returncode == 1
    assert shell.run("exchanges", "delete", source, between, "--yes").returncode == 0
    assert shell.error("exchanges", "delete", source, "--yes") == f"there is no exchange named {source}"
    assert shell.error("bindings", "add", source, name) == f"there is no exchange named {source}"


def test_move(shell: Shell, queue: str, name: str) -> None:
    target = f"{name}-target"
    assert shell.error("queues", "move", queue, target) == f"there is no queue named {target}"
    shell.run("queues", "declare", target)
    done = shell.run("queues", "move", queue, target, "--count", "2")
    assert done.stderr.startswith(f"Moved 2 messages from {queue} to {target} in "), done.stderr
    assert (_bodies(shell, target), _bodies(shell, queue)) == (["0", "1"], ["2", "3", "4"])
    shown = shell.terminal("queues", "move", queue, target)
    assert "3/3" in shown
    assert _bodies(shell, target) == ["0", "1", "2", "3", "4"]
    assert shell.run("queues", "get", queue).stderr == f"{queue} is empty.\n"


def test_move_to_another_broker(shell: Shell, queue: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    with new_process("headwater", tmp_path_factory.mktemp("other") / "data") as process:
        other = InProcess("", broker_of(process).url())
        other.run("queues", "declare", queue)
        assert shell.run("queues", "move", queue, queue, "--to-broker", other.amqp).returncode == 0
        assert _bodies(other, queue) == ["0", "1", "2", "3", "4"]
        assert _bodies(shell, queue) == []
        assert other.run("queues", "move", queue, queue, "--to-broker", shell.amqp).returncode == 0
    assert _bodies(shell, queue) == ["0", "1", "2", "3", "4"]


def test_move_into_a_queue_that_gets_full_loses_nothing(shell: Shell, queue: str) -> None:
    target = f"{queue}-target"
    shell.run("queues", "declare", target, "-a", "x-max-length=2", "-a", "x-overflow=reject-publish")
    error = shell.error("queues", "move", queue, target)
    assert error == f"3 messages were refused, and stay in {queue}: {target} is full; 2 were moved"
    assert (_bodies(shell, target), _bodies(shell, queue)) == (["0", "1"], ["2", "3", "4"])


def test_a_killed_move_loses_nothing(shell: Shell, channel: Channel, name: str) -> None:
    source, target = f"{name}-source", f"{name}-target"
    for queue in (source, target):
        channel.declare_queue(queue)
    channel.confirm()
    for number in range(3000):
        channel.publish(b"%d" % number, routing_key=source)
    channel.flush()
    move = shell.start("queues", "move", source, target, "--rate", "2000/s")
    eventually(lambda: channel.look_up(target).messages, lambda count: count > 200)
    move.send_signal(signal.SIGKILL)
    move.communicate(timeout=20)
    eventually(
        lambda: channel.look_up(source).messages + channel.look_up(target).messages,
        lambda count: count >= 3000,
    )
    time.sleep(0.2)  # what was under way has arrived
    moved = [int(message.body) for message in channel.get_many(target, 3000)]
    left = [int(message.body) for message in channel.get_many(source, 3000)]
    assert 0 < len(left) < 3000
    assert moved == sorted(moved)
    assert set(moved) | set(left) == set(range(3000))
    assert len(moved) + len(left) - 3000 <= 500


def _dead_letters(channel: Channel, name: str) -> tuple[str, str, str]:
    """Make two queues whose rejected messages go to a third, and reject some in both."""
    first, second, dead = f"{name}-first", f"{name}-second", f"{name}-dead"
    channel.declare_queue(dead)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    channel.confirm()
    for queue in (first, second):
        channel.declare_queue(queue, arguments=arguments)
        for number in range(10):
            channel.publish(f"{queue}-{number}".encode(), routing_key=queue)
        channel.flush()
        for message in channel.get_many(queue, 10):
            channel.nack(message.tag, requeue=False)
    eventually(lambda: channel.look_up(dead).messages, lambda count: count == 20)
    return first, second, dead


def test_redrive_sends_each_back_to_where_it_died_first(shell: Shell, channel: Channel, name: str) -> None:
    first, second, dead = _dead_letters(channel, name)
    channel.publish(b"a stranger", routing_key=dead)
    channel.flush()
    done = shell.run("queues", "redrive", dead)
    assert done.returncode == 0
    moved, kept = done.stderr.splitlines()
    assert moved.startswith(f"Moved 20 messages from {dead} in ")
    assert kept.startswith(f"1 messages stay in {dead}: they do not say which queue they died in; --to QUEUE")
    for queue in (first, second):
        assert _bodies(shell, queue) == [f"{queue}-{number}" for number in range(10)]
    assert _bodies(shell, dead) == ["a stranger"]
    assert shell.run("queues", "redrive", dead, "--to", first).returncode == 0
    assert _bodies(shell, first)[-1] == "a stranger"


def test_redrive_at_a_rate_with_a_bar(shell: Shell, channel: Channel, name: str) -> None:
    first, second, dead = _dead_letters(channel, name)
    began = time.monotonic()
    shown = shell.terminal("queues", "redrive", dead, "--rate", "20/s")
    assert time.monotonic() - began > 0.9
    assert "20/20" in shown
    assert len(_bodies(shell, first)) == len(_bodies(shell, second)) == 10


def test_what_dies_again_is_not_sent_again(shell: Shell, channel: Channel, name: str) -> None:
    """A queue without room sends everything back at once: the command ends all the same."""
    first, dead = f"{name}-first", f"{name}-dead"
    channel.declare_queue(dead)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead, "x-message-ttl": 0}
    channel.declare_queue(first, arguments=arguments)
    channel.confirm()
    for number in range(10):
        channel.publish(b"%d" % number, routing_key=first)
    channel.flush()
    eventually(lambda: channel.look_up(dead).messages, lambda count: count == 10)
    done = shell.run("queues", "redrive", dead)
    assert done.stderr.startswith(f"Moved 10 messages from {dead} in "), done.stderr
    eventually(lambda: channel.look_up(dead).messages, lambda count: count == 10)


def test_dead_letters_of_a_topic_go_elsewhere(
    shell: Shell, queue_broker: Broker, channel: Channel, name: str
) -> None:
    if not queue_broker.is_headwater:
        with pytest.raises(Refused, match="x-headwater-topic"):
            channel.declare_exchange(name, "x-headwater-topic", arguments={"topic": name})
        return
    fed, dead, repaired = name, f"{name}-dead", f"{name}-repaired"
    for queue in (dead, repaired):
        channel.declare_queue(queue)
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    channel.declare_queue(fed, arguments={"x-headwater-topic": name, **letters})
    channel.declare_exchange(name, "x-headwater-topic", arguments={"topic": name})
    channel.confirm()
    channel.publish(b"broken", exchange=name, routing_key="key")
    channel.flush()
    with channel.consume(fed, seconds=10) as messages:
        channel.nack(next(messages).tag, requeue=False)
    eventually(lambda: channel.look_up(dead).messages, lambda count: count == 1)
    error = shell.error("queues", "redrive", dead)
    assert "takes messages from its topic alone" in error
    assert error.endswith("; 0 were moved")
    assert _bodies(shell, dead) == ["broken"]
    assert shell.run("queues", "redrive", dead, "--to", repaired).returncode == 0
    assert _bodies(shell, repaired) == ["broken"]


def test_lists(shell: Shell, queue_broker: Broker, queue: str) -> None:
    if not queue_broker.is_headwater:
        error = shell.error("queues", "list")
        assert "is RabbitMQ 3.10.8, which does not answer Headwater's requests" in error
        assert error.endswith("use rabbitmqctl list_queues there")
        return
    shell.run("queues", "declare", f"{queue}-2", "--transient", "--auto-delete", "-a", "x-max-length=10")
    rows = {row["name"]: row for row in shell.lines("queues", "list")}
    assert (
        rows[queue].items() >= {"messages": 5, "messages_ready": 5, "consumers": 0, "durable": True}.items()
    )
    assert rows[f"{queue}-2"]["arguments"] == {"x-max-length": 10}
    assert not [name for name in rows if name.startswith("amq.")]
    shown = shell.terminal("queues", "list")
    assert "messages ready" in shown
    assert "transient, auto-delete, x-max-length=10" in shown
    shell.run("exchanges", "declare", queue, "--type", "fanout")
    shell.run("bindings", "add", queue, queue)
    exchanges = {row["name"]: row["type"] for row in shell.lines("exchanges", "list")}
    assert exchanges.items() >= {"": "direct", "amq.topic": "topic", queue: "fanout"}.items()
    assert "fanout" in shell.terminal("exchanges", "list")
    [row] = shell.lines("bindings", "list", "--source", queue)
    assert (row["destination"], row["destination_type"], row["routing_key"]) == (queue, "queue", "")
    assert queue in shell.terminal("bindings", "list", "--destination", queue)


def test_virtual_hosts(shell: Shell, queue_broker: Broker, name: str) -> None:
    if not queue_broker.is_headwater:
        assert "rabbitmqctl" in shell.error("vhosts", "add", name)
        return
    assert shell.run("vhosts", "add", name).stderr == f"Added {name}.\n"
    assert {"/", name} <= {row["name"] for row in shell.lines("vhosts", "list")}
    inside = InProcess("", queue_broker.url(name))
    assert inside.run("queues", "declare", "q").returncode == 0
    assert [row["name"] for row in inside.lines("queues", "list")] == ["q"]
    assert inside.error("queues", "get", "p") == f"there is no queue named p in the virtual host {name}"
    assert shell.run("vhosts", "delete", name, "--yes").returncode == 0
    assert name not in {row["name"] for row in shell.lines("vhosts", "list")}
    assert f"vhost {name} not found" in inside.error("queues", "get", "q")
