"""What the commands ask: lists, and virtual hosts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ConnectionClosedByBroker

from amqp_clients.brokers import Broker, broker_of
from amqp_clients.pika_client import Inbox, connected, opened, take
from clients.brokers import unique
from headwater.testing.process import BrokerProcess

pytestmark = pytest.mark.real

MANAGEMENT = "amq.headwater.management"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker of one's own, so that lists are short."""
    with BrokerProcess(tmp_path_factory.mktemp("management") / "data", amqp=True) as process:
        yield broker_of(process)


@pytest.fixture
def channel(broker: Broker) -> Iterator[BlockingChannel]:
    """A channel."""
    with opened(broker) as made:
        yield made


def ask(channel: BlockingChannel, request: Any) -> Any:
    """Ask by a reply queue of one's own."""
    queue = str(channel.queue_declare("", exclusive=True).method.queue)
    properties = pika.BasicProperties(reply_to=queue, correlation_id="17")
    body = request if isinstance(request, bytes) else json.dumps(request)
    channel.basic_publish("", MANAGEMENT, body, properties)
    [answer] = take(channel, queue, 1)
    channel.queue_delete(queue)
    assert (answer.properties.correlation_id, answer.properties.content_type) == ("17", "application/json")
    return json.loads(answer.body)


def test_queues_are_listed_with_what_is_in_them(broker: Broker, channel: BlockingChannel) -> None:
    name = unique("m")
    channel.queue_declare(name, durable=True, arguments={"x-max-length": 100})
    for _ in range(5):
        channel.basic_publish("", name, b"abc", pika.BasicProperties(delivery_mode=2))
    with opened(broker) as worker:
        take(worker, name, 2, auto_ack=False)
        worker.basic_consume(str(worker.queue_declare("", exclusive=True).method.queue), print)
        items = {item["name"]: item for item in ask(channel, {"list": "queues", "vhost": "/"})["items"]}
        found = items[name]
        assert found.pop("memory_bytes") > 0
        assert found == {
            "name": name,
            "vhost": "/",
            "durable": True,
            "exclusive": False,
            "auto_delete": False,
            "arguments": {"x-max-length": 100},
            "messages_ready": 3,
            "messages_unacknowledged": 2,
            "messages": 5,
            "message_bytes": 9,
            "consumers": 0,
        }
        assert sum(item["consumers"] for item in items.values()) == 1


def test_exchanges_and_bindings_are_listed(channel: BlockingChannel) -> None:
    name = unique("m")
    channel.exchange_declare(name, "topic", durable=True, arguments={"alternate-exchange": "amq.fanout"})
    channel.queue_declare(name, durable=True)
    channel.queue_bind(name, name, "a.*", {"x": 1})
    channel.exchange_bind("amq.fanout", name, "b.#")
    exchanges = {item["name"]: item for item in ask(channel, {"list": "exchanges"})["items"]}
    assert exchanges[name] == {
        "name": name,
        "vhost": "/",
        "type": "topic",
        "durable": True,
        "auto_delete": False,
        "internal": False,
        "arguments": {"alternate-exchange": "amq.fanout"},
    }
    assert {"", "amq.direct", "amq.topic"} <= set(exchanges)
    bindings = [item for item in ask(channel, {"list": "bindings"})["items"] if item["source"] == name]
    assert [
        (b["destination"], b["destination_type"], b["routing_key"], b["arguments"]) for b in bindings
    ] == [
        (name, "queue", "a.*", {"x": 1}),
        ("amq.fanout", "exchange", "b.#", {}),
    ]


def test_connections_are_listed(broker: Broker, channel: BlockingChannel) -> None:
    with opened(broker):
        items = ask(channel, {"list": "connections"})["items"]
    assert [(item["user"], item["peer"], item["channels"]) for item in items] == [
        ("guest", "127.0.0.1", 1)
    ] * 2


def test_a_reply_comes_without_a_queue_too(channel: BlockingChannel) -> None:
    inbox = Inbox(channel)
    inbox.consume("amq.rabbitmq.reply-to", auto_ack=True)
    properties = pika.BasicProperties(reply_to="amq.rabbitmq.reply-to", correlation_id="1")
    channel.basic_publish("", MANAGEMENT, json.dumps({"list": "vhosts"}), properties)
    [answer] = inbox.wait(1)
    assert {"name": "/"} in json.loads(answer.body)["items"]


def test_a_virtual_host_comes_and_goes_with_everything_in_it(
    broker: Broker, channel: BlockingChannel
) -> None:
    name = unique("host")
    assert ask(channel, {"add_vhost": name}) == {"items": []}
    assert ask(channel, {"add_vhost": name}) == {"items": []}
    assert {"name": name} in ask(channel, {"list": "vhosts"})["items"]
    with connected(broker, virtual_host=name) as other:
        inside = other.channel()
        inside.queue_declare("q", durable=True)
        inside.queue_declare("mine", exclusive=True)
        inside.basic_publish("", "q", b"x", pika.BasicProperties(delivery_mode=2))
        inside.basic_qos()
        assert {item["name"] for item in ask(channel, {"list": "queues", "vhost": name})["items"]} == {
            "q",
            "mine",
        }
        assert ask(channel, {"delete_vhost": name}) == {"items": []}
        with pytest.raises(ConnectionClosedByBroker, match=f"vhost '{name}' is deleted"):
            inside.basic_qos()
    assert {"name": name} not in ask(channel, {"list": "vhosts"})["items"]
    assert ask(channel, {"list": "queues", "vhost": name}) == {"error": f"vhost {name} not found"}
    assert ask(channel, {"add_vhost": name}) == {"items": []}
    assert ask(channel, {"list": "queues", "vhost": name}) == {"items": []}


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (b"{", "the request is not JSON"),
        (b"[]", "the request is no JSON object"),
        ({"list": "secrets"}, "there is no such request"),
        ({"list": "queues", "vhost": 5}, "the vhost of a request is a string"),
        ({"delete_vhost": "nowhere"}, "no vhost 'nowhere'"),
        ({"delete_vhost": "/"}, "vhost '/' cannot be deleted"),
        ({"add_vhost": ""}, "the name of a vhost has 1 to 255 bytes"),
    ],
)
def test_what_cannot_be_done_is_said(channel: BlockingChannel, request_: Any, error: str) -> None:
    assert error in ask(channel, request_)["error"]


def test_without_an_address_there_is_no_answer(channel: BlockingChannel) -> None:
    channel.confirm_delivery()
    channel.basic_publish("", MANAGEMENT, json.dumps({"list": "vhosts"}), mandatory=True)
    channel.basic_publish("", MANAGEMENT, b"{}", pika.BasicProperties(reply_to="nobody"))
