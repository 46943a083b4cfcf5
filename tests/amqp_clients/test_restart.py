"""What survives a restart, clean or not, and what does not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError, ChannelClosedByBroker

from .brokers import Broker, Process, broker_of
from .pika_client import Inbox, count, opened, publish, take

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

Scenario = Callable[[Broker], Iterator[None]]
"""What is done before a restart, and behind its `yield` what has to be so after it."""


def drop(channel: BlockingChannel) -> None:
    """Forget a connection whose broker went away."""
    try:
        channel.connection.process_data_events(1)
        channel.connection.close()
    except AMQPError:
        pass


def declared(broker: Broker, queue: str) -> bool:
    with opened(broker) as channel:
        try:
            channel.queue_declare(queue, passive=True)
        except ChannelClosedByBroker:
            return False
    return True


def durable_things_and_persistent_messages_survive(broker: Broker) -> Iterator[None]:
    with opened(broker) as channel:
        channel.confirm_delivery()
        channel.exchange_declare("kept-x", "topic", durable=True)
        channel.exchange_declare("lost-x", "topic")
        channel.queue_declare("kept", durable=True)
        channel.queue_declare("lost")
        channel.queue_bind("kept", "kept-x", "a.#")
        channel.queue_bind("kept", "lost-x", "a.#")
        for number in range(20):
            mode = 2 if number % 2 else 1
            publish(
                channel, "a.b", b"%d" % number, exchange="kept-x", delivery_mode=mode, headers={"n": number}
            )
        publish(channel, "lost", b"gone", delivery_mode=2)
    yield
    with opened(broker) as channel:
        channel.confirm_delivery()
        found = take(channel, "kept", 10)
        assert [each.body for each in found] == [b"%d" % each for each in range(1, 20, 2)]
        assert [each.headers for each in found] == [{"n": each} for each in range(1, 20, 2)]
        assert {each.properties.delivery_mode for each in found} == {2}
        assert count(channel, "kept") == 0
        publish(channel, "a.c", b"bound still", exchange="kept-x")
        assert [each.body for each in take(channel, "kept", 1)] == [b"bound still"]
    assert not declared(broker, "lost")
    with opened(broker) as channel, pytest.raises(ChannelClosedByBroker):
        channel.exchange_declare("lost-x", passive=True)


def unacknowledged_messages_come_back_flagged_and_acknowledged_ones_do_not(broker: Broker) -> Iterator[None]:
    with opened(broker) as channel:
        channel.confirm_delivery()
        channel.queue_declare("work", durable=True)
        publish(channel, "work", *(b"%d" % each for each in range(10)), delivery_mode=2)
        channel.basic_qos(prefetch_count=6)
        inbox = Inbox(channel)
        inbox.consume("work")
        held = inbox.wait(6)
        for delivery in held[:3]:
            channel.basic_ack(delivery.tag)
        # Acknowledgements are not confirmed: the pause stands for the "last unsynced instant".
        channel.connection.sleep(1)
        yield
        drop(channel)
    with opened(broker) as channel:
        found = take(channel, "work", 7)
        assert [each.body for each in found] == [b"%d" % each for each in range(3, 10)]
        assert [each.redelivered for each in found[:3]] == [True] * 3
        assert count(channel, "work") == 0


def requeued_messages_priorities_and_limits_survive(broker: Broker) -> Iterator[None]:
    arguments = {
        "x-max-priority": 5,
        "x-max-length": 4,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "dead",
    }
    with opened(broker) as channel:
        channel.confirm_delivery()
        channel.queue_declare("ranked", durable=True, arguments=arguments)
        channel.queue_declare("dead", durable=True)
        for number, priority in enumerate([1, 5, 3, 5]):
            publish(channel, "ranked", b"%d" % number, delivery_mode=2, priority=priority)
        [held] = take(channel, "ranked", 1, auto_ack=False)
        channel.basic_nack(held.tag, requeue=True)
        channel.connection.sleep(0.5)
    yield
    with opened(broker) as channel:
        channel.confirm_delivery()
        channel.queue_declare("ranked", durable=True, arguments=arguments)
        assert [each.body for each in take(channel, "ranked", 4)] == [b"1", b"3", b"2", b"0"]
        publish(channel, "ranked", *(b"%d" % each for each in range(6)), delivery_mode=2)
        assert [each.body for each in take(channel, "dead", 2)] == [b"0", b"1"]


def how_often_a_message_was_given_back_survives(broker: Broker) -> Iterator[None]:
    with opened(broker) as channel:
        channel.confirm_delivery()
        channel.queue_declare("poison", durable=True, arguments={"x-queue-type": "quorum"})
        publish(channel, "poison", b"m", delivery_mode=2)
        for _ in range(2):
            [held] = take(channel, "poison", 1, auto_ack=False)
            channel.basic_nack(held.tag, requeue=True)
        channel.connection.sleep(0.5)
    yield
    with opened(broker) as channel:
        [found] = take(channel, "poison", 1)
        assert found.headers["x-delivery-count"] == 2


def the_time_to_live_goes_on_while_the_broker_is_away(broker: Broker) -> Iterator[None]:
    with opened(broker) as channel:
        channel.confirm_delivery()
        channel.queue_declare("short", durable=True)
        publish(channel, "short", b"expires", delivery_mode=2, expiration="300")
        publish(channel, "short", b"stays", delivery_mode=2, expiration="600000")
    yield
    with opened(broker) as channel:
        channel.connection.sleep(1)
        assert [each.body for each in take(channel, "short", 1)] == [b"stays"]


SCENARIOS: tuple[Scenario, ...] = (
    durable_things_and_persistent_messages_survive,
    requeued_messages_priorities_and_limits_survive,
    how_often_a_message_was_given_back_survives,
    the_time_to_live_goes_on_while_the_broker_is_away,
    unacknowledged_messages_come_back_flagged_and_acknowledged_ones_do_not,  # its connection sees the end
)


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_what_survives_a_restart(process: Process, ending: str) -> None:
    with process:
        broker = broker_of(process)
        running = [scenario(broker) for scenario in SCENARIOS]
        for each in running:
            next(each)
        process.kill() if ending == "kill" else process.stop()
        process.start()
        for each in running:
            assert next(each, "over") == "over"


def test_nothing_confirmed_is_lost_when_the_broker_is_killed_at_work(process: Process) -> None:
    """Messages are published, consumed and acknowledged all the while."""
    with process:
        broker = broker_of(process)
        confirmed: list[int] = []
        acknowledged: set[int] = set()
        with opened(broker) as channel:
            channel.queue_declare("busy", durable=True)
        enough = threading.Event()

        def produce() -> None:
            try:
                with opened(broker) as channel:
                    channel.confirm_delivery()
                    for number in range(100_000):
                        publish(channel, "busy", b"%d" % number, delivery_mode=2)
                        confirmed.append(number)
                        if number == 500:
                            enough.set()
            except AMQPError:
                enough.set()

        def consume() -> None:
            def work(channel: BlockingChannel, method: Any, _properties: Any, body: bytes) -> None:
                if int(body) % 3 == 0:
                    channel.basic_ack(method.delivery_tag)
                    acknowledged.add(int(body))

            try:
                with opened(broker) as channel:
                    channel.basic_consume("busy", work)
                    channel.start_consuming()
            except AMQPError:
                pass

        threads = [threading.Thread(target=produce), threading.Thread(target=consume)]
        for thread in threads:
            thread.start()
        assert enough.wait(60)
        process.kill()
        for thread in threads:
            thread.join(30)
        process.start()
        with opened(broker) as channel:
            left = {int(each.body) for each in take(channel, "busy", count(channel, "busy"))}
        assert set(confirmed) <= left | acknowledged
        missing_acknowledged = acknowledged - left
        assert missing_acknowledged, "what was acknowledged long before the crash came back"
