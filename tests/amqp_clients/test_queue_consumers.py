"""Who among the consumers of a queue is served, and which message first."""

from __future__ import annotations

import pika
import pytest
from pamqp import commands
from pika.adapters.blocking_connection import BlockingChannel

from .brokers import Broker
from .pika_client import Inbox, bodies, channel_closed, connected, declare, get, opened, publish, take
from .raw import Raw

pytestmark = pytest.mark.real


def test_higher_priorities_come_first_and_equal_ones_in_order(confirming: BlockingChannel, name: str) -> None:
    declare(confirming, name, arguments={"x-max-priority": 5})
    for number, priority in enumerate([None, 3, 0, 5, 3, 200, 1]):
        publish(confirming, name, b"%d:%s" % (number, str(priority).encode()), priority=priority)
    assert bodies(confirming, name, 7) == [b"3:5", b"5:200", b"1:3", b"4:3", b"6:1", b"0:None", b"2:0"]


def test_a_requeued_message_keeps_its_priority_and_place(confirming: BlockingChannel, name: str) -> None:
    declare(confirming, name, arguments={"x-max-priority": 5})
    publish(confirming, name, b"low", priority=1)
    publish(confirming, name, b"first", b"second", priority=4)
    held = get(confirming, name, auto_ack=False)
    assert held is not None
    assert held.body == b"first"
    publish(confirming, name, b"third", priority=4)
    confirming.basic_nack(held.tag, requeue=True)
    assert bodies(confirming, name, 4) == [b"first", b"second", b"third", b"low"]


def test_without_priorities_of_the_queue_those_of_messages_mean_nothing(
    confirming: BlockingChannel, name: str
) -> None:
    declare(confirming, name)
    publish(confirming, name, b"low", priority=1)
    publish(confirming, name, b"high", priority=9)
    assert bodies(confirming, name, 2) == [b"low", b"high"]


def test_consumers_take_turns(confirming: BlockingChannel, name: str) -> None:
    declare(confirming, name)
    inboxes = [Inbox(confirming) for _each in range(3)]
    for inbox in inboxes:
        inbox.consume(name, auto_ack=True)
    publish(confirming, name, *(b"%d" % each for each in range(9)))
    assert [inbox.bodies(3) for inbox in inboxes] == [
        [b"%d" % each for each in range(first, 9, 3)] for first in range(3)
    ]


def test_a_busy_consumer_is_passed_over(broker: Broker, name: str) -> None:
    with opened(broker) as channel, opened(broker) as busy_channel:
        channel.queue_declare(name, auto_delete=True)
        busy_channel.basic_qos(prefetch_count=1)
        busy, idle = Inbox(busy_channel), Inbox(channel)
        busy.consume(name)
        publish(channel, name, b"held")
        assert busy.bodies(1) == [b"held"]
        idle.consume(name, auto_ack=True)
        publish(channel, name, b"1", b"2", b"3")
        assert idle.bodies(3) == [b"1", b"2", b"3"]


def test_higher_consumer_priorities_are_served_first(broker: Broker, name: str) -> None:
    with opened(broker) as low_channel, opened(broker) as high_channel:
        low_channel.confirm_delivery()
        low_channel.queue_declare(name, auto_delete=True)
        low, high = Inbox(low_channel), Inbox(high_channel)
        low.consume(name, arguments={"x-priority": -1})
        high_channel.basic_qos(prefetch_count=2)
        high.consume(name, arguments={"x-priority": 10})
        publish(low_channel, name, b"1", b"2", b"3")
        [first, second] = high.wait(2)
        assert (first.body, second.body) == (b"1", b"2")
        assert low.bodies(1) == [b"3"]
        high_channel.basic_ack(second.tag, multiple=True)
        high_channel.connection.sleep(0.1)
        publish(low_channel, name, b"4")
        assert high.bodies(1) == [b"4"]
        assert low.quiet()


def test_a_consumer_priority_that_is_no_number_is_refused(channel: BlockingChannel, name: str) -> None:
    declare(channel, name)
    text = f"invalid arg 'x-priority' for queue '{name}' in vhost '/': \"expected integer, got longstr\""
    with channel_closed(406, f"PRECONDITION_FAILED - {text}"):
        Inbox(channel).consume(name, arguments={"x-priority": "high"})


def test_one_consumer_is_active_and_another_takes_over(broker: Broker, name: str) -> None:
    with opened(broker) as publisher, opened(broker) as second_channel:
        publisher.queue_declare(name, auto_delete=True, arguments={"x-single-active-consumer": True})
        with opened(broker) as first_channel:
            first, second = Inbox(first_channel), Inbox(second_channel)
            first.consume(name)
            second.consume(name)
            publish(publisher, name, b"0", b"1", b"2")
            found = first.wait(3)
            assert [each.body for each in found] == [b"0", b"1", b"2"]
            assert second.quiet()
            first_channel.basic_ack(found[0].tag)
            first_channel.connection.sleep(0.1)
        [one, two] = second.wait(2)
        assert [(one.body, one.redelivered), (two.body, two.redelivered)] == [(b"1", True), (b"2", True)]
        publish(publisher, name, b"3")
        assert second.bodies(1) == [b"3"]


def test_cancelling_the_active_consumer_activates_the_next(
    connection: pika.BlockingConnection, name: str
) -> None:
    channel = connection.channel()
    channel.queue_declare(name, auto_delete=True, arguments={"x-single-active-consumer": True})
    first, second = Inbox(channel), Inbox(channel)
    tag = first.consume(name, auto_ack=True)
    second.consume(name, auto_ack=True)
    publish(channel, name, b"a")
    assert first.bodies(1) == [b"a"]
    channel.basic_cancel(tag)
    publish(channel, name, b"b")
    assert second.bodies(1) == [b"b"]


def test_an_exclusive_consumer_is_the_only_one(broker: Broker, name: str) -> None:
    refusal = f"ACCESS_REFUSED - queue '{name}' in vhost '/' in exclusive use"
    with connected(broker) as connection, connected(broker) as other:
        channel = connection.channel()
        channel.queue_declare(name)
        tag = Inbox(channel).consume(name, exclusive=True)
        with channel_closed(403, refusal):
            Inbox(other.channel()).consume(name)
        channel.basic_cancel(tag)
        shared = other.channel()
        Inbox(shared).consume(name)
        with channel_closed(403, refusal):
            Inbox(connection.channel()).consume(name, exclusive=True)
        shared.queue_delete(name)


def test_a_message_is_offered_again_to_others_when_its_consumer_dies(broker: Broker, name: str) -> None:
    with opened(broker) as channel:
        channel.queue_declare(name)
        publish(channel, name, b"work")
        with Raw(broker) as dying:
            dying.open().channel()
            dying.call(commands.Basic.Consume(queue=name), commands.Basic.ConsumeOk, 1)
            assert not dying.expect(commands.Basic.Deliver, 1).redelivered
        [again] = take(channel, name, 1)
        assert (again.body, again.redelivered) == (b"work", True)
        channel.queue_delete(name)
