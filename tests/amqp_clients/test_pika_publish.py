"""Publishing: messages as they were, returns, confirms and transactions."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import UnroutableError

from .brokers import Broker
from .pika_client import (
    Inbox,
    bodies,
    channel_closed,
    connection_closed,
    count,
    declare,
    get,
    opened,
    publish,
    synchronize,
    take,
)

pytestmark = pytest.mark.real

PROPERTIES: dict[str, Any] = {
    "content_type": "application/json",
    "content_encoding": "gzip",
    "delivery_mode": 2,
    "priority": 7,
    "correlation_id": "correlation",
    "reply_to": "answers",
    "expiration": "60000",
    "message_id": "id-1",
    "timestamp": 1_700_000_000,
    "type": "order",
    "user_id": "guest",
    "app_id": "shop",
    "cluster_id": "cluster",
}
HEADERS: dict[str, Any] = {
    "string": "ünïcode",
    "true": True,
    "small": 1,
    "negative": -1,
    "large": 2**40,
    "decimal": Decimal("3.14"),
    "none": None,
    "time": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
    "list": [1, "two", [3, {"four": 5}]],
    "table": {"nested": {"deeper": "value"}},
}


def test_every_property_and_header_comes_back(confirming: BlockingChannel, name: str) -> None:
    declare(confirming, name)
    publish(confirming, name, b"m", headers=HEADERS, **PROPERTIES)
    [found] = take(confirming, name, 1)
    assert {each: getattr(found.properties, each) for each in PROPERTIES} == PROPERTIES
    assert found.headers == HEADERS


def test_a_message_without_properties_has_none(confirming: BlockingChannel, name: str) -> None:
    declare(confirming, name)
    publish(confirming, name, b"")
    [found] = take(confirming, name, 1)
    assert found.body == b""
    assert {each: getattr(found.properties, each) for each in (*PROPERTIES, "headers")} == dict.fromkeys(
        (*PROPERTIES, "headers")
    )


def test_a_message_does_not_claim_another_user(channel: BlockingChannel, name: str) -> None:
    declare(channel, name)
    text = "PRECONDITION_FAILED - user_id property set to 'somebody' but authenticated user was 'guest'"
    with channel_closed(406, text):
        publish(channel, name, b"m", user_id="somebody")
        synchronize(channel)


def test_a_mandatory_message_without_a_queue_comes_back(channel: BlockingChannel, name: str) -> None:
    returned: list[tuple[Any, Any, bytes]] = []
    channel.add_on_return_callback(lambda _channel, *what: returned.append(what))
    declare(channel, name)
    publish(channel, name, b"arrives", mandatory=True)
    publish(
        channel,
        "nowhere",
        b"returns",
        exchange="amq.direct",
        mandatory=True,
        message_id="1",
        headers={"a": 1},
    )
    publish(channel, "nowhere", b"vanishes", exchange="amq.direct")
    channel.connection.sleep(0.3)
    [(method, properties, body)] = returned
    assert (method.reply_code, method.reply_text) == (312, "NO_ROUTE")
    assert (method.exchange, method.routing_key, body) == ("amq.direct", "nowhere", b"returns")
    assert (properties.message_id, properties.headers) == ("1", {"a": 1})
    assert bodies(channel, name, 1) == [b"arrives"]


def test_a_returned_message_is_confirmed_after_its_return(confirming: BlockingChannel) -> None:
    with pytest.raises(UnroutableError) as unroutable:
        publish(confirming, "nowhere", b"m", mandatory=True)
    assert [message.body for message in unroutable.value.messages] == [b"m"]
    publish(confirming, "nowhere", b"unroutable and not mandatory: confirmed")


def test_immediate_is_not_implemented(connection: pika.BlockingConnection) -> None:
    """RabbitMQ dropped it, and closes the connection that asks for it."""
    channel = connection.channel()
    method = pika.spec.Basic.Publish(exchange="", routing_key="x", immediate=True)
    with connection_closed(540, "NOT_IMPLEMENTED - immediate=true"):
        channel._impl._send_method(method, (pika.BasicProperties(), b"m"))
        synchronize(channel)


class Confirms:
    """A channel that counts what is confirmed, without waiting for each."""

    def __init__(self, channel: BlockingChannel) -> None:
        self.channel = channel
        self.settled: set[int] = set()
        self.refused: set[int] = set()
        self.frames = 0
        self._next = 1
        channel._impl.confirm_delivery(self._note)
        channel.connection.process_data_events(0.1)

    def _note(self, frame: Any) -> None:
        self.frames += 1
        last = frame.method.delivery_tag
        first = max(self.settled | self.refused, default=0) + 1 if frame.method.multiple else last
        to = self.refused if isinstance(frame.method, pika.spec.Basic.Nack) else self.settled
        to.update(range(first, last + 1))

    def publish(self, routing_key: str, body: bytes, **properties: Any) -> int:
        self.channel._impl.basic_publish("", routing_key, body, pika.BasicProperties(**properties))
        self._next += 1
        return self._next - 1

    def wait(self, number: int) -> None:
        for _turn in range(300):
            if len(self.settled) + len(self.refused) >= number:
                return
            self.channel.connection.process_data_events(0.05)
        raise AssertionError(f"{len(self.settled)} of {number} were confirmed")


@pytest.mark.parametrize("mode", [1, 2])
def test_confirms_count_every_message_of_the_channel(connection: pika.BlockingConnection, mode: int) -> None:
    channel = connection.channel()
    queue = declare(channel, durable=True)
    confirms = Confirms(channel)
    for number in range(1_000):
        confirms.publish(queue, b"%d" % number, delivery_mode=mode)
    confirms.wait(1_000)
    assert confirms.settled == set(range(1, 1_001))
    assert count(channel, queue) == 1_000


def test_refused_and_confirmed_messages_are_told_apart(connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    queue = declare(channel, arguments={"x-max-length": 5, "x-overflow": "reject-publish"})
    confirms = Confirms(channel)
    for number in range(10):
        confirms.publish(queue, b"%d" % number)
        confirms.wait(number + 1)
    assert (confirms.settled, confirms.refused) == (set(range(1, 6)), set(range(6, 11)))


def test_a_channel_that_confirms_does_not_transact(connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    channel.confirm_delivery()
    with channel_closed(406, "PRECONDITION_FAILED - cannot switch from confirm to tx mode"):
        channel.tx_select()
    channel = connection.channel()
    channel.tx_select()
    with channel_closed(406, "PRECONDITION_FAILED - cannot switch from tx to confirm mode"):
        channel.confirm_delivery()


def test_a_transaction_publishes_when_it_commits(broker: Broker, name: str) -> None:
    with opened(broker) as channel, opened(broker) as reader:
        channel.queue_declare(name, auto_delete=True)
        channel.tx_select()
        publish(channel, name, b"a", b"b")
        channel.connection.sleep(0.2)
        assert count(reader, name) == 0
        channel.tx_commit()
        assert bodies(reader, name, 2) == [b"a", b"b"]
        publish(channel, name, b"c")
        channel.tx_rollback()
        channel.tx_commit()
        assert get(reader, name) is None


def test_a_transaction_acknowledges_when_it_commits(broker: Broker, name: str) -> None:
    with opened(broker) as other:
        other.confirm_delivery()
        other.queue_declare(name)
        publish(other, name, b"a", b"b", b"c")
        with opened(broker) as channel:
            channel.tx_select()
            first, second, third = take(channel, name, 3, auto_ack=False)
            channel.basic_ack(first.tag)
            channel.tx_commit()
            channel.basic_ack(second.tag)
            channel.tx_rollback()
            channel.basic_ack(second.tag)
            channel.basic_reject(third.tag, requeue=True)
            assert count(other, name) == 0
        [again, last] = take(other, name, 2)
        assert [(again.body, again.redelivered), (last.body, last.redelivered)] == [
            (b"b", True),
            (b"c", True),
        ]
        other.queue_delete(name)


@pytest.mark.parametrize("method", ["tx_commit", "tx_rollback"])
def test_a_channel_without_transactions_has_nothing_to_end(channel: BlockingChannel, method: str) -> None:
    with channel_closed(406, "PRECONDITION_FAILED - channel is not transactional"):
        getattr(channel, method)()


def test_an_answer_goes_straight_to_who_asked(broker: Broker, name: str) -> None:
    """Direct reply-to: no queue is declared for the answers."""
    with opened(broker) as client, opened(broker) as server:
        server.queue_declare(name, auto_delete=True)
        answers, questions = Inbox(client), Inbox(server)
        questions.consume(name, auto_ack=True)
        answers.consume("amq.rabbitmq.reply-to", auto_ack=True)
        publish(client, name, b"1+1", reply_to="amq.rabbitmq.reply-to", correlation_id="7")
        [question] = questions.wait(1)
        assert question.properties.reply_to.startswith("amq.rabbitmq.reply-to.")
        publish(server, question.properties.reply_to, b"2", correlation_id=question.properties.correlation_id)
        [answer] = answers.wait(1)
        assert (answer.body, answer.properties.correlation_id) == (b"2", "7")
        assert answer.method.routing_key == question.properties.reply_to


def test_who_answers_can_tell_whether_the_asker_is_still_there(
    connection: pika.BlockingConnection, name: str
) -> None:
    client, server = connection.channel(), connection.channel()
    declare(server, name)
    tag = client.basic_consume("amq.rabbitmq.reply-to", lambda *_: None, auto_ack=True)
    publish(client, name, b"1+1", reply_to="amq.rabbitmq.reply-to")
    [question] = take(server, name, 1)
    address = question.properties.reply_to
    for passive in (True, False):
        there = server.queue_declare(address, passive=passive).method
        assert (there.queue, there.message_count, there.consumer_count) == (address, 0, 1)
    client.basic_cancel(tag)
    for passive in (True, False):
        with channel_closed(404, f"NOT_FOUND - no queue '{address}' in vhost '/'"):
            connection.channel().queue_declare(address, passive=passive)


def test_direct_reply_to_wants_a_consumer_without_acknowledgements(
    connection: pika.BlockingConnection,
) -> None:
    with channel_closed(406, "PRECONDITION_FAILED - reply consumer cannot acknowledge"):
        Inbox(connection.channel()).consume("amq.rabbitmq.reply-to")
    channel = connection.channel()
    with channel_closed(406, "PRECONDITION_FAILED - fast reply consumer does not exist"):
        publish(channel, "anywhere", b"m", reply_to="amq.rabbitmq.reply-to")
        synchronize(channel)
