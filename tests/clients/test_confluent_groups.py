"""Consumer groups of confluent-kafka, with the classic protocol and with the consumer protocol."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, TopicPartition

from .brokers import Broker, eventually
from .confluent import SECONDS, consumer, produce, take

pytestmark = pytest.mark.real

both_protocols = pytest.mark.parametrize("protocol", ["classic", "consumer"])


def assigned(made: Consumer) -> set[int]:
    made.poll(0.05)
    return {each.partition for each in made.assignment()}


def polled(first: Consumer, second: Consumer) -> Callable[[], tuple[set[int], set[int]]]:
    """Keep both members alive and return what each one has."""
    return lambda: (assigned(first), assigned(second))


def committed(made: Consumer, topic: str, partition: int = 0) -> int:
    [found] = made.committed([TopicPartition(topic, partition)], timeout=SECONDS)
    assert found.error is None
    return found.offset


@both_protocols
def test_two_members_share_the_partitions_and_one_takes_over(
    broker: Broker, wide_topic: str, group: str, protocol: str
) -> None:
    with consumer(broker, group, group_protocol=protocol) as first:
        first.subscribe([wide_topic])
        assert eventually(lambda: assigned(first), lambda seen: len(seen) == 4) == {0, 1, 2, 3}
        with consumer(broker, group, group_protocol=protocol) as second:
            second.subscribe([wide_topic])
            one, other = eventually(polled(first, second), lambda seen: len(seen[0]) == len(seen[1]) == 2)
            assert one | other == {0, 1, 2, 3}
        assert eventually(lambda: assigned(first), lambda seen: len(seen) == 4) == {0, 1, 2, 3}


@both_protocols
def test_every_record_goes_to_one_member_of_each_group(
    broker: Broker, wide_topic: str, group: str, protocol: str
) -> None:
    with (
        consumer(broker, group, group_protocol=protocol) as first,
        consumer(broker, group, group_protocol=protocol) as second,
        consumer(broker, f"{group}-other", group_protocol=protocol) as other,
    ):
        for made in (first, second, other):
            made.subscribe([wide_topic])
        eventually(polled(first, second), lambda seen: len(seen[0]) == len(seen[1]) == 2)
        for partition in range(4):
            values = [b"%d-%d" % (partition, each) for each in range(25)]
            produce(broker, wide_topic, values, partition=partition)
        seen: dict[str, list[Message]] = {"first": [], "second": []}
        threads = [
            threading.Thread(target=lambda made=made, name=name: seen[name].extend(take(made, 50)))
            for name, made in (("first", first), ("second", second))
        ]
        for thread in threads:
            thread.start()
        everything = {message.value() for message in take(other, 100)}
        for thread in threads:
            thread.join()
    values_seen = [message.value() for messages in seen.values() for message in messages]
    assert len(values_seen) == 100
    assert set(values_seen) == everything


@both_protocols
def test_a_group_resumes_where_it_committed(broker: Broker, topic: str, group: str, protocol: str) -> None:
    produce(broker, topic, [b"%d" % number for number in range(10)])
    with consumer(broker, group, group_protocol=protocol) as made:
        made.subscribe([topic])
        messages = take(made, 10)
        assert committed(made, topic) == OFFSET_INVALID
        made.commit(message=messages[3], asynchronous=False)
        assert committed(made, topic) == 4
    with consumer(broker, group, group_protocol=protocol) as made:
        made.subscribe([topic])
        assert [message.offset() for message in take(made, 6)] == [4, 5, 6, 7, 8, 9]


def test_positions_are_committed_by_the_clock_and_on_leaving(broker: Broker, topic: str, group: str) -> None:
    produce(broker, topic, [b"%d" % number for number in range(5)])
    with consumer(broker, group, enable_auto_commit=True) as made:
        made.subscribe([topic])
        take(made, 5)
    with consumer(broker, group) as made:
        assert committed(made, topic) == 5


def test_a_commit_carries_metadata_without_any_membership(broker: Broker, topic: str, group: str) -> None:
    produce(broker, topic, [b"%d" % number for number in range(5)])
    with consumer(broker, group) as made:
        made.commit(offsets=[TopicPartition(topic, 0, 2, metadata="résumé")], asynchronous=False)
        [found] = made.committed([TopicPartition(topic, 0)], timeout=SECONDS)
    assert (found.offset, found.metadata) == (2, "résumé")


@pytest.mark.parametrize(("reset", "first"), [("earliest", b"old"), ("latest", b"new")])
def test_without_a_position_the_group_starts_where_it_is_told(
    broker: Broker, topic: str, group: str, reset: str, first: bytes
) -> None:
    produce(broker, topic, [b"old"])
    with consumer(broker, group, auto_offset_reset=reset) as made:
        made.subscribe([topic])
        eventually(lambda: made.poll(0.05) or made.position(made.assignment()), bool)
        if reset == "latest":
            assert made.poll(0.5) is None
            produce(broker, topic, [b"new"])
            [message] = take(made, 1)
            assert message.value() == first
    if reset == "earliest":
        with consumer(broker, f"{group}-again") as made:
            made.subscribe([topic])
            assert [message.value() for message in take(made, 1)] == [first]


def test_without_a_position_and_a_rule_the_consumer_is_told(broker: Broker, topic: str, group: str) -> None:
    with consumer(broker, group, auto_offset_reset="error") as made:
        made.subscribe([topic])
        message = eventually(lambda: made.poll(0.1), lambda seen: seen is not None)
    assert message is not None
    error = message.error()
    assert error is not None
    assert error.code() == KafkaError._AUTO_OFFSET_RESET


@both_protocols
def test_a_static_member_comes_back_to_its_partitions(
    broker: Broker, wide_topic: str, group: str, protocol: str
) -> None:
    def member(name: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "group.instance.id": name,
                "group.protocol": protocol,
            }
        )

    first, second = member("one"), member("two")
    try:
        for made in (first, second):
            made.subscribe([wide_topic])
        before = eventually(polled(first, second), lambda seen: len(seen[0]) == len(seen[1]) == 2)
        second.close()
        second = member("two")
        second.subscribe([wide_topic])
        after = eventually(polled(first, second), lambda seen: len(seen[0]) == len(seen[1]) == 2)
        assert after == before
    finally:
        first.close()
        second.close()


@both_protocols
def test_a_pattern_finds_topics_that_come_later(
    broker: Broker, topic: str, group: str, protocol: str
) -> None:
    with consumer(broker, group, group_protocol=protocol, topic_metadata_refresh_interval_ms=200) as made:
        made.subscribe([f"^{topic}.*"])
        eventually(lambda: assigned(made), lambda seen: len(seen) == 1)
        produce(broker, f"{topic}-later", [b"here"])
        # With the consumer protocol the broker looks for new topics every ten seconds at most.
        message = eventually(lambda: made.poll(0.1), lambda seen: seen is not None, seconds=40)
    assert message is not None
    assert (message.topic(), message.value()) == (f"{topic}-later", b"here")


def test_a_commit_by_a_member_that_was_thrown_out_is_refused(broker: Broker, topic: str, group: str) -> None:
    """A member without heartbeats for its session time-out is not in the group any more."""
    produce(broker, topic, [b"a"])
    with consumer(broker, group, session_timeout_ms=6000, max_poll_interval_ms=6000) as slow:
        slow.subscribe([topic])
        take(slow, 1)
        message = eventually(lambda: slow_poll_error(slow), lambda seen: seen is not None, seconds=20)
        assert message == KafkaError._MAX_POLL_EXCEEDED
        with pytest.raises(KafkaException) as refused:
            slow.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
        assert refused.value.args[0].code() in {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION}


def slow_poll_error(made: Consumer) -> int | None:
    threading.Event().wait(6.5)
    message = made.poll(0.1)
    error = message.error() if message is not None else None
    return int(error.code()) if error is not None else None
