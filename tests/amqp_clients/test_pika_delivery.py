"""Delivery: messages pulled and pushed, how many at a time, acknowledged, refused and given again."""

from __future__ import annotations

from itertools import product

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from .brokers import Broker
from .pika_client import (
    Inbox,
    bodies,
    channel_closed,
    connected,
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


def numbered(number: int) -> list[bytes]:
    return [b"%d" % each for each in range(number)]


@pytest.fixture
def queue(confirming: BlockingChannel, name: str) -> str:
    """A queue of this connection with the messages 0 to 9."""
    declare(confirming, name)
    publish(confirming, name, *numbered(10))
    return name


def test_get_tells_how_many_are_left(confirming: BlockingChannel, queue: str) -> None:
    left = []
    for _each in range(10):
        found = get(confirming, queue)
        assert found is not None
        left.append(found.method.message_count)
    assert left == list(range(9, -1, -1))
    assert get(confirming, queue) is None


def test_acknowledged_messages_are_gone_and_others_come_back_flagged(broker: Broker, name: str) -> None:
    with opened(broker) as other:
        other.confirm_delivery()
        other.queue_declare(name)
        publish(other, name, b"a", b"b", b"c")
        with opened(broker) as channel:
            first, second, third = take(channel, name, 3, auto_ack=False)
            assert [first.redelivered, second.redelivered, third.redelivered] == [False] * 3
            channel.basic_ack(second.tag)
        again = take(other, name, 2)
        assert [(each.body, each.redelivered) for each in again] == [(b"a", True), (b"c", True)]
        other.queue_delete(name)


def test_closing_the_channel_gives_messages_back(connection: pika.BlockingConnection, queue: str) -> None:
    channel = connection.channel()
    take(channel, queue, 3, auto_ack=False)
    channel.close()
    found = take(connection.channel(), queue, 10)
    assert [each.body for each in found] == numbered(10)
    assert [each.redelivered for each in found] == [True] * 3 + [False] * 7


def test_requeued_messages_take_their_old_places(confirming: BlockingChannel, queue: str) -> None:
    held = take(confirming, queue, 5, auto_ack=False)
    for position in (3, 1, 0):
        confirming.basic_nack(held[position].tag, requeue=True)
    confirming.basic_ack(held[2].tag)
    found = take(confirming, queue, 8)
    assert [each.body for each in found] == [b"0", b"1", b"3", b"5", b"6", b"7", b"8", b"9"]
    assert [each.redelivered for each in found] == [True] * 3 + [False] * 5


def test_a_rejected_message_comes_back_or_does_not(confirming: BlockingChannel, queue: str) -> None:
    first, second = take(confirming, queue, 2, auto_ack=False)
    confirming.basic_reject(first.tag, requeue=True)
    confirming.basic_reject(second.tag, requeue=False)
    assert bodies(confirming, queue, 9) == [b"0", *numbered(10)[2:]]


@pytest.mark.parametrize(
    ("settle", "left"),
    [
        ("ack multiple", [b"4", b"5", b"6", b"7", b"8", b"9"]),
        ("nack multiple", numbered(10)),
        ("discard multiple", [b"4", b"5", b"6", b"7", b"8", b"9"]),
        ("ack all", [b"6", b"7", b"8", b"9"]),
        ("nack all", numbered(10)),
    ],
)
def test_one_method_settles_many(
    connection: pika.BlockingConnection, queue: str, settle: str, left: list[bytes]
) -> None:
    channel = connection.channel()
    held = take(channel, queue, 6, auto_ack=False)
    match settle:
        case "ack multiple":
            channel.basic_ack(held[3].tag, multiple=True)
        case "nack multiple":
            channel.basic_nack(held[3].tag, multiple=True, requeue=True)
        case "discard multiple":
            channel.basic_nack(held[3].tag, multiple=True, requeue=False)
        case "ack all":
            channel.basic_ack(0, multiple=True)
        case _:
            channel.basic_nack(0, multiple=True, requeue=True)
    channel.close()
    assert bodies(connection.channel(), queue, len(left)) == left


@pytest.mark.parametrize(
    ("method", "how"),
    [
        *product(["ack", "nack", "reject"], ["unknown", "twice", "other channel", "auto ack"]),
        *product(["ack", "nack"], ["multiple unknown", "multiple twice"]),
    ],
)
def test_an_unknown_delivery_tag_closes_the_channel(
    connection: pika.BlockingConnection, queue: str, how: str, method: str
) -> None:
    channel = connection.channel()
    held = take(channel, queue, 2, auto_ack=how == "auto ack")[1]
    used, tag, multiple = channel, held.tag, False
    if how == "unknown":
        tag = 99
    elif how == "twice":
        channel.basic_ack(tag)
    elif how == "other channel":
        used = connection.channel()
    elif how == "multiple unknown":
        tag, multiple = 99, True
    elif how == "multiple twice":
        channel.basic_ack(tag)
        multiple = True
    with channel_closed(406, f"PRECONDITION_FAILED - unknown delivery tag {tag}"):
        if method == "reject":
            used.basic_reject(tag, requeue=False)
        elif method == "ack":
            used.basic_ack(tag, multiple=multiple)
        else:
            used.basic_nack(tag, multiple=multiple)
        synchronize(used)
    assert connection.is_open


def test_acknowledging_everything_of_nothing_is_no_error(channel: BlockingChannel) -> None:
    channel.basic_ack(0, multiple=True)
    channel.basic_nack(0, multiple=True)
    assert declare(channel)


def test_the_prefetch_of_a_consumer_bounds_what_it_holds(confirming: BlockingChannel, queue: str) -> None:
    confirming.basic_qos(prefetch_count=3)
    inbox = Inbox(confirming)
    inbox.consume(queue)
    held = inbox.wait(3)
    assert inbox.quiet()
    confirming.basic_ack(held[0].tag)
    assert inbox.bodies(1) == [b"3"]
    assert inbox.quiet()
    confirming.basic_ack(held[2].tag, multiple=True)
    assert inbox.bodies(2) == [b"4", b"5"]


def test_the_prefetch_of_a_consumer_is_that_of_when_it_began(confirming: BlockingChannel, queue: str) -> None:
    confirming.basic_qos(prefetch_count=1)
    one, two = Inbox(confirming), Inbox(confirming)
    one.consume(queue)
    confirming.basic_qos(prefetch_count=4)
    two.consume(queue)
    assert one.bodies(1) == [b"0"]
    assert two.bodies(4) == [b"1", b"2", b"3", b"4"]
    assert one.quiet()
    assert two.quiet()


def test_the_prefetch_of_a_channel_bounds_its_consumers_together(
    confirming: BlockingChannel, queue: str
) -> None:
    confirming.basic_qos(prefetch_count=4, global_qos=True)
    one, two = Inbox(confirming), Inbox(confirming)
    one.consume(queue)
    two.consume(queue)
    confirming.connection.sleep(0.5)
    assert len(one.deliveries) + len(two.deliveries) == 4
    confirming.basic_ack(0, multiple=True)
    confirming.connection.sleep(0.5)
    assert len(one.deliveries) + len(two.deliveries) == 8


def test_a_prefetch_of_nothing_is_no_bound(confirming: BlockingChannel, queue: str) -> None:
    confirming.basic_qos(prefetch_count=0)
    inbox = Inbox(confirming)
    inbox.consume(queue)
    assert inbox.bodies(10) == numbered(10)


def test_a_prefetch_by_size_is_not_implemented(connection: pika.BlockingConnection) -> None:
    with connection_closed(540, "NOT_IMPLEMENTED - prefetch_size!=0 (1000)"):
        connection.channel().basic_qos(prefetch_size=1_000)


def test_what_is_consumed_without_acknowledgements_is_not_bounded(
    confirming: BlockingChannel, queue: str
) -> None:
    confirming.basic_qos(prefetch_count=1)
    inbox = Inbox(confirming)
    inbox.consume(queue, auto_ack=True)
    assert inbox.bodies(10) == numbered(10)


def test_get_is_not_bounded_by_the_prefetch(confirming: BlockingChannel, queue: str) -> None:
    confirming.basic_qos(prefetch_count=1, global_qos=True)
    assert [each.body for each in take(confirming, queue, 5, auto_ack=False)] == numbered(5)


def test_acknowledging_what_was_got_makes_no_room_for_consumers(
    confirming: BlockingChannel, queue: str
) -> None:
    confirming.basic_qos(prefetch_count=1, global_qos=True)
    inbox = Inbox(confirming)
    inbox.consume(queue)
    assert inbox.bodies(1) == [b"0"]
    got = take(confirming, queue, 3, auto_ack=False)
    confirming.basic_ack(got[0].tag)
    confirming.basic_reject(got[1].tag, requeue=False)
    confirming.basic_nack(got[2].tag)
    assert inbox.quiet()


def test_recover_gives_messages_again(confirming: BlockingChannel, queue: str) -> None:
    inbox = Inbox(confirming)
    inbox.consume(queue)
    held = inbox.wait(10)
    confirming.basic_ack(held[4].tag)
    confirming.basic_recover(requeue=True)
    again = inbox.wait(9)
    assert [each.body for each in again] == [each for each in numbered(10) if each != b"4"]
    assert all(each.redelivered for each in again)
    assert [each.tag for each in again] == list(range(11, 20))


def test_recover_without_requeue_is_not_implemented(connection: pika.BlockingConnection) -> None:
    with connection_closed(540, "NOT_IMPLEMENTED - requeue=false"):
        connection.channel().basic_recover(requeue=False)


def test_delivery_tags_count_the_messages_of_a_channel(confirming: BlockingChannel, queue: str) -> None:
    inbox = Inbox(confirming)
    first = get(confirming, queue)
    assert first is not None
    inbox.consume(queue, auto_ack=True)
    assert [first.tag, *(each.tag for each in inbox.wait(9))] == list(range(1, 11))


def test_ten_thousand_messages_keep_their_order(broker: Broker, name: str) -> None:
    with connected(broker) as connection:
        channel = connection.channel()
        declare(channel, name)
        channel.basic_qos(prefetch_count=500)
        inbox = Inbox(channel)
        inbox.consume(name)
        for start in range(0, 10_000, 500):
            publish(channel, name, *(b"%d" % each for each in range(start, start + 500)))
            found = inbox.wait(500)
            assert [each.body for each in found] == [b"%d" % each for each in range(start, start + 500)]
            channel.basic_ack(found[-1].tag, multiple=True)
        assert count(channel, name) == 0
