"""What a queue does with messages and consumers, one rule at a time."""

from __future__ import annotations

import pytest

from headwater.broker.queues.consumers import Consumer
from headwater.broker.queues.queue import Queue, Reason
from headwater.core.amqp import AmqpError, ReplyCode

from .queue_harness import NOW, Channel, message, new_queue, number_of


def publish(queue: Queue, *numbers: int, now_ms: int = NOW, priority: int | None = None) -> list[bool]:
    return [queue.publish(message(number, priority=priority), now_ms) for number in numbers]


def consumer(
    queue: Queue,
    channel: Channel,
    tag: str = "c",
    *,
    prefetch: int = 0,
    priority: int = 0,
    no_ack: bool = False,
) -> Consumer:
    made = Consumer(queue, channel, tag, prefetch=prefetch, priority=priority, no_ack=no_ack)
    queue.add_consumer(made)
    return made


def rest(queue: Queue, now_ms: int = NOW) -> list[int]:
    """Take all that waits."""
    taker = Consumer(queue, Channel(), "", no_ack=True)
    found = []
    while (taken := queue.get(taker, now_ms)) is not None:
        found.append(number_of(taken))
    return found


def dead(queue: Queue) -> list[tuple[int, str]]:
    entries, queue.dead = queue.dead, []
    return [(number_of(entry.message), entry.reason) for entry in entries]


def requeue(queue: Queue, channel: Channel, *numbers: int) -> None:
    for each in [each for each in channel.unacked if number_of(each) in numbers]:
        channel.release(each)
        queue.requeue(each)


# -- turns ---------------------------------------------------------------------------------------


def test_consumers_take_turns_also_when_messages_come_one_by_one() -> None:
    queue, channel = new_queue(), Channel()
    for tag in "abc":
        consumer(queue, channel, tag)
    for number in range(7):
        publish(queue, number)
        queue.dispatch(NOW)
    assert channel.deliveries == [("abcabca"[n], n) for n in range(7)]


def test_a_consumer_that_comes_or_goes_leaves_the_turns_of_the_others_alone() -> None:
    queue, channel = new_queue(), Channel()
    a, b = consumer(queue, channel, "a"), consumer(queue, channel, "b")
    publish(queue, 0)
    queue.dispatch(NOW)
    consumer(queue, channel, "c")
    publish(queue, 1)
    queue.dispatch(NOW)
    queue.remove_consumer(a)
    publish(queue, 2, 3)
    queue.dispatch(NOW)
    assert channel.deliveries == [("a", 0), ("b", 1), ("c", 2), ("b", 3)]
    assert b.unacked == 2


def test_a_consumer_of_higher_priority_gets_all_it_has_room_for() -> None:
    queue, channel = new_queue(), Channel()
    consumer(queue, channel, "low")
    consumer(queue, channel, "high", priority=5, prefetch=2)
    consumer(queue, channel, "low too", priority=0)
    publish(queue, *range(5))
    queue.dispatch(NOW)
    assert sorted(channel.deliveries) == [("high", 0), ("high", 1), ("low", 2), ("low", 4), ("low too", 3)]


def test_prefetch_limits_each_consumer_and_the_channel_all_of_them() -> None:
    queue, channel = new_queue(), Channel(room=3)
    consumer(queue, channel, "a", prefetch=2)
    consumer(queue, channel, "b", prefetch=2)
    publish(queue, *range(9))
    queue.dispatch(NOW)
    assert len(channel.unacked) == 3
    first = channel.unacked[0]
    channel.release(first)
    queue.acknowledge(first)
    queue.dispatch(NOW)
    assert len(channel.unacked) == 3
    assert queue.unacked == 3
    assert len(queue) == 5


def test_a_consumer_without_acknowledgements_or_a_choked_one() -> None:
    queue, channel = new_queue(), Channel(room=0)
    consumer(queue, channel, no_ack=True)
    channel.choked = True
    publish(queue, 1, 2)
    queue.dispatch(NOW)
    assert channel.took() == []
    channel.choked = False
    queue.dispatch(NOW)
    assert channel.took() == [1, 2]
    assert queue.unacked == 0
    assert len(queue) == 0


def test_single_active_consumer_is_the_first_and_the_best_of_the_rest_follows() -> None:
    queue, channel = new_queue({"x-single-active-consumer": True}), Channel()
    first = consumer(queue, channel, "first")
    consumer(queue, channel, "second")
    best = consumer(queue, channel, "best", priority=9)
    publish(queue, 1, 2)
    queue.dispatch(NOW)
    queue.remove_consumer(first)
    publish(queue, 3)
    queue.dispatch(NOW)
    queue.remove_consumer(best)
    publish(queue, 4)
    queue.dispatch(NOW)
    assert channel.deliveries == [("first", 1), ("first", 2), ("best", 3), ("second", 4)]


def test_single_active_consumer_without_room_is_waited_for() -> None:
    queue, channel = new_queue({"x-single-active-consumer": True}), Channel()
    consumer(queue, channel, "first", prefetch=1)
    consumer(queue, channel, "second")
    publish(queue, 1, 2)
    queue.dispatch(NOW)
    assert channel.deliveries == [("first", 1)]


@pytest.mark.parametrize("arguments", [{}, {"x-single-active-consumer": True}])
def test_an_exclusive_consumer_is_alone(arguments: dict[str, bool]) -> None:
    queue, channel = new_queue(arguments), Channel()
    consumer(queue, channel)
    with pytest.raises(AmqpError, match="in exclusive use") as caught:
        queue.add_consumer(Consumer(queue, channel, "x", exclusive=True))
    assert caught.value.code is ReplyCode.ACCESS_REFUSED
    assert len(queue.consumers) == 1


def test_no_exclusive_consumer_where_there_is_a_single_active_one() -> None:
    queue = new_queue({"x-single-active-consumer": True})
    with pytest.raises(AmqpError, match="in exclusive use"):
        queue.add_consumer(Consumer(queue, Channel(), "x", exclusive=True))


def test_an_auto_delete_queue_goes_with_its_last_consumer() -> None:
    queue = new_queue(auto_delete=True)
    a, b = consumer(queue, Channel(), "a"), consumer(queue, Channel(), "b")
    assert not queue.remove_consumer(a)
    assert queue.remove_consumer(b)


# -- order ---------------------------------------------------------------------------------------


def test_what_is_given_back_goes_first_in_its_old_order_and_flagged() -> None:
    queue, channel = new_queue(), Channel()
    consumer(queue, channel, prefetch=4)
    publish(queue, *range(6))
    queue.dispatch(NOW)
    requeue(queue, channel, 2)
    requeue(queue, channel, 0, 1)
    channel.took()
    queue.dispatch(NOW)
    assert channel.took() == [0, 1, 2]
    assert [each.deliveries for each in channel.unacked] == [0, 1, 1, 1]


def test_purge_leaves_what_is_unacknowledged() -> None:
    queue, channel = new_queue(), Channel()
    consumer(queue, channel, prefetch=2)
    publish(queue, *range(5))
    queue.dispatch(NOW)
    assert queue.purge() == 3
    assert len(queue) == 0
    assert queue.unacked == 2
    requeue(queue, channel, 0, 1)
    assert rest(queue) == [0, 1]


def test_higher_priorities_go_first_and_those_beyond_the_highest_count_as_it() -> None:
    queue = new_queue({"x-max-priority": 3})
    for number, priority in enumerate([None, 3, 1, 200, 0, 2]):
        publish(queue, number, priority=priority)
    assert rest(queue) == [1, 3, 5, 2, 0, 4]


# -- limits --------------------------------------------------------------------------------------


def test_drop_head_drops_the_oldest() -> None:
    queue = new_queue({"x-max-length": 2})
    assert publish(queue, *range(4)) == [True] * 4
    assert dead(queue) == [(0, Reason.MAX_LENGTH), (1, Reason.MAX_LENGTH)]
    assert rest(queue) == [2, 3]


def test_drop_head_with_priorities_drops_what_would_be_delivered_next() -> None:
    queue = new_queue({"x-max-length": 2, "x-max-priority": 5})
    publish(queue, 0, priority=1)
    publish(queue, 1, priority=5)
    publish(queue, 2, priority=1)
    assert dead(queue) == [(1, Reason.MAX_LENGTH)], "as RabbitMQ, which says so in its guide to priorities"
    assert rest(queue) == [0, 2]


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_a_full_queue_refuses_what_comes(overflow: str) -> None:
    queue = new_queue({"x-max-length": 2, "x-overflow": overflow})
    assert publish(queue, 0, 1, 2) == [True, True, False]
    assert dead(queue) == ([(2, Reason.MAX_LENGTH)] if overflow.endswith("dlx") else [])
    assert rest(queue) == [0, 1]


@pytest.mark.parametrize("overflow", ["drop-head", "reject-publish"])
def test_bytes_count_bodies(overflow: str) -> None:
    queue = new_queue({"x-max-length-bytes": 100, "x-overflow": overflow})
    taken = [queue.publish(message(number, size=40), NOW) for number in range(4)]
    assert taken == ([True] * 4 if overflow == "drop-head" else [True, True, False, False])
    assert rest(queue) == ([2, 3] if overflow == "drop-head" else [0, 1])


@pytest.mark.parametrize("overflow", ["drop-head", "reject-publish"])
@pytest.mark.parametrize("length", [0, 1])
def test_what_a_consumer_has_room_for_takes_no_room(overflow: str, length: int) -> None:
    queue, channel = new_queue({"x-max-length": length, "x-overflow": overflow}), Channel()
    consumer(queue, channel, prefetch=3)
    taken = publish(queue, *range(6))
    queue.dispatch(NOW)
    if overflow == "drop-head":
        assert channel.took() == [0, 1, 2]
        assert rest(queue) == [5][:length]
    elif length:
        assert channel.took() == [0, 1, 2]
        assert taken == [True] * 4 + [False] * 2
        assert rest(queue) == [3]
    else:
        assert taken == [False] * 6, "RabbitMQ looks at the limit first"


def test_only_what_is_ready_counts_and_what_is_given_back_counts_again() -> None:
    queue, channel = new_queue({"x-max-length": 2}), Channel()
    consumer(queue, channel, prefetch=2)
    publish(queue, 0, 1)
    queue.dispatch(NOW)
    publish(queue, 2, 3)
    assert dead(queue) == []
    queue.consumers.all[0].prefetch = 1
    requeue(queue, channel, 0, 1)
    assert dead(queue) == [(0, Reason.MAX_LENGTH), (1, Reason.MAX_LENGTH)]
    assert rest(queue) == [2, 3]


# -- time ----------------------------------------------------------------------------------------


def test_messages_expire_at_the_head_of_the_queue() -> None:
    queue = new_queue({"x-message-ttl": 100})
    publish(queue, 0)
    publish(queue, 1, now_ms=NOW + 50)
    assert queue.next_expiry() == NOW + 100
    queue.expire(NOW + 101)
    assert dead(queue) == [(0, Reason.EXPIRED)]
    assert rest(queue, NOW + 149) == [1]


def test_no_more_expire_while_so_many_are_dead() -> None:
    queue, channel = new_queue({"x-message-ttl": 100}), Channel()
    publish(queue, *range(5))
    publish(queue, 5, now_ms=NOW + 50)
    consumer(queue, channel)
    assert queue.dispatch(NOW + 101, 3)
    assert queue.expire(NOW + 101, 3)
    assert (len(queue), channel.took()) == (3, [])
    assert dead(queue) == [(number, Reason.EXPIRED) for number in range(3)]
    assert not queue.dispatch(NOW + 101, 3)
    assert channel.took() == [5]
    assert dead(queue) == [(number, Reason.EXPIRED) for number in (3, 4)]


def test_a_message_of_its_own_ttl_expires_when_it_gets_to_the_head() -> None:
    queue = new_queue()
    queue.publish(message(0), NOW)
    queue.publish(message(1, ttl=10), NOW)
    queue.publish(message(2, ttl=1000), NOW)
    queue.expire(NOW + 500)
    assert dead(queue) == []
    assert len(queue) == 3
    assert rest(queue, NOW + 500) == [0, 2]
    assert dead(queue) == [(1, Reason.EXPIRED)]


def test_the_shorter_ttl_counts() -> None:
    queue = new_queue({"x-message-ttl": 100})
    queue.publish(message(0, ttl=500), NOW)
    queue.publish(message(1, ttl=5), NOW)
    assert rest(queue, NOW + 101) == []
    queue.publish(message(2, ttl=5), NOW)
    assert rest(queue, NOW + 50) == []


@pytest.mark.parametrize("waiting", [True, False])
def test_a_ttl_of_nothing_is_for_whoever_is_ready(waiting: bool) -> None:
    queue, channel = new_queue(), Channel()
    if waiting:
        consumer(queue, channel)
    queue.publish(message(0, ttl=0), NOW)
    queue.dispatch(NOW + 1)
    queue.expire(NOW + 1)
    assert channel.took() == ([0] if waiting else [])
    assert dead(queue) == ([] if waiting else [(0, Reason.EXPIRED)])


def test_what_has_expired_is_not_delivered() -> None:
    queue, channel = new_queue({"x-message-ttl": 10}), Channel()
    publish(queue, *range(3))
    consumer(queue, channel)
    consumer(queue, channel, "other")
    publish(queue, 3, now_ms=NOW + 20)
    queue.dispatch(NOW + 20)
    assert channel.took() == [3]
    assert [reason for _, reason in dead(queue)] == [Reason.EXPIRED] * 3


def test_a_lower_priority_expires_after_the_higher_ones() -> None:
    queue = new_queue({"x-max-priority": 1})
    queue.publish(message(0, priority=0, ttl=10), NOW)
    queue.publish(message(1, priority=1), NOW)
    queue.expire(NOW + 100)
    assert dead(queue) == []
    assert rest(queue, NOW + 100) == [1]
    assert dead(queue) == [(0, Reason.EXPIRED)]


# -- ends ----------------------------------------------------------------------------------------


def test_rejected_is_dead() -> None:
    queue, channel = new_queue(), Channel()
    consumer(queue, channel)
    publish(queue, 0)
    queue.dispatch(NOW)
    found = channel.unacked[0]
    channel.release(found)
    queue.reject(found)
    assert dead(queue) == [(0, Reason.REJECTED)]
    assert queue.unacked == len(queue) == 0


def test_a_message_is_delivered_once_more_than_the_limit_says() -> None:
    queue, channel = new_queue({"x-queue-type": "quorum", "x-delivery-limit": 2}), Channel()
    consumer(queue, channel)
    publish(queue, 0)
    for _ in range(5):
        queue.dispatch(NOW)
        requeue(queue, channel, 0)
    assert channel.took() == [0, 0, 0]
    assert dead(queue) == [(0, Reason.DELIVERY_LIMIT)]


def test_a_queue_that_cannot_be_served_refuses_and_says_why() -> None:
    queue = new_queue()
    queue.fail("its log does not open")
    assert publish(queue, 0) == [False]
    assert len(queue) == 0
    for ask in (queue.check, lambda: consumer(queue, Channel()), lambda: rest(queue)):
        with pytest.raises(
            AmqpError, match=r"queue 'q' in vhost '/' cannot be served: its log does not open"
        ):
            ask()
