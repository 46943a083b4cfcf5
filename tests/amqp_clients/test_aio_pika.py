"""aio-pika: robust connections, confirms, iterators, RPC and several tasks on one channel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage
from aio_pika.exceptions import ChannelNotFoundEntity, ChannelPreconditionFailed, DeliveryError
from aio_pika.patterns import RPC

from .brokers import Broker, Process, broker_of

pytestmark = pytest.mark.real

SECONDS = 15


@pytest.fixture
async def channel(broker: Broker) -> AsyncIterator[AbstractChannel]:
    """A channel that confirms."""
    connection = await aio_pika.connect(broker.url())
    async with connection:
        yield await connection.channel()


async def test_messages_with_their_properties_arrive_in_order(channel: AbstractChannel, name: str) -> None:
    queue = await channel.declare_queue(name, auto_delete=True)
    for number in range(100):
        message = aio_pika.Message(
            b"%d" % number,
            headers={"n": number, "nested": {"list": [1.5, "a"]}},
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            message_id=str(number),
        )
        await channel.default_exchange.publish(message, routing_key=name)
    seen: list[AbstractIncomingMessage] = []
    async with queue.iterator(timeout=SECONDS) as messages:
        async for found in messages:
            async with found.process():
                seen.append(found)
            if len(seen) == 100:
                break
    assert [found.body for found in seen] == [b"%d" % each for each in range(100)]
    assert seen[7].headers == {"n": 7, "nested": {"list": [1.5, "a"]}}
    assert (seen[7].message_id, seen[7].delivery_mode) == ("7", aio_pika.DeliveryMode.PERSISTENT)


async def test_many_publishes_wait_for_their_confirms_at_once(channel: AbstractChannel, name: str) -> None:
    queue = await channel.declare_queue(name, exclusive=True)
    messages = [aio_pika.Message(b"%d" % each) for each in range(1_000)]
    await asyncio.gather(*(channel.default_exchange.publish(each, routing_key=name) for each in messages))
    again = await channel.declare_queue(name, passive=True)
    assert again.declaration_result.message_count == 1_000
    assert (await queue.purge()).message_count == 1_000


async def test_what_cannot_be_routed_or_taken_raises(broker: Broker, name: str) -> None:
    async with await aio_pika.connect(broker.url()) as connection:
        channel = await connection.channel(on_return_raises=True)
        exchange = channel.default_exchange
        with pytest.raises(DeliveryError):
            await exchange.publish(aio_pika.Message(b"m"), routing_key=name, mandatory=True)
        arguments: dict[str, Any] = {"x-max-length": 1, "x-overflow": "reject-publish"}
        await channel.declare_queue(name, exclusive=True, arguments=arguments)
        await exchange.publish(aio_pika.Message(b"fits"), routing_key=name)
        with pytest.raises(DeliveryError):
            await exchange.publish(aio_pika.Message(b"too many"), routing_key=name)


async def test_errors_have_their_own_classes(broker: Broker, name: str) -> None:
    async with await aio_pika.connect(broker.url()) as connection:
        channel = await connection.channel()
        with pytest.raises(ChannelNotFoundEntity):
            await channel.get_queue(name)
        channel = await connection.channel()
        await channel.declare_queue(name, exclusive=True)
        with pytest.raises(ChannelPreconditionFailed):
            await channel.declare_queue(name, exclusive=True, arguments={"x-max-length": 1})


async def test_an_exception_while_processing_requeues(channel: AbstractChannel, name: str) -> None:
    queue = await channel.declare_queue(name, exclusive=True)
    await channel.default_exchange.publish(aio_pika.Message(b"m"), routing_key=name)
    first = await queue.get(timeout=SECONDS)
    with pytest.raises(ZeroDivisionError):
        async with first.process(requeue=True):
            _ = 1 / 0
    second = await queue.get(timeout=SECONDS)
    assert (first.redelivered, second.redelivered) == (False, True)
    await second.ack()


async def test_topic_subscriptions(channel: AbstractChannel, name: str) -> None:
    exchange = await channel.declare_exchange(name, aio_pika.ExchangeType.TOPIC, auto_delete=True)
    queue = await channel.declare_queue(exclusive=True)
    await queue.bind(exchange, "orders.*.paid")
    for key in ("orders.1.paid", "orders.2.sent", "orders.3.paid"):
        await exchange.publish(aio_pika.Message(key.encode()), routing_key=key)
    found = [await queue.get(timeout=SECONDS, no_ack=True) for _each in range(2)]
    assert [each.body for each in found] == [b"orders.1.paid", b"orders.3.paid"]


async def test_remote_procedures(broker: Broker, name: str) -> None:
    async with await aio_pika.connect(broker.url()) as connection:
        rpc = await RPC.create(await connection.channel())

        async def multiply(*, x: int, y: int) -> int:
            return x * y

        await rpc.register(name, multiply, auto_delete=True)
        answers = await asyncio.gather(*(rpc.call(name, {"x": each, "y": 2}) for each in range(20)))
        assert answers == [each * 2 for each in range(20)]
        await rpc.close()


async def test_a_transaction_commits_or_does_not(broker: Broker, name: str) -> None:
    async with await aio_pika.connect(broker.url()) as connection:
        channel = await connection.channel(publisher_confirms=False)
        queue = await channel.declare_queue(name, exclusive=True)
        async with channel.transaction():
            await channel.default_exchange.publish(aio_pika.Message(b"in"), routing_key=name)
        transaction = channel.transaction()
        await transaction.select()
        await channel.default_exchange.publish(aio_pika.Message(b"out"), routing_key=name)
        await transaction.rollback()
        assert (await queue.get(timeout=SECONDS, no_ack=True)).body == b"in"
        assert await queue.get(fail=False, no_ack=True) is None


async def test_a_robust_connection_takes_up_its_work_after_a_restart(process: Process) -> None:
    with process:
        broker = broker_of(process)
        connection = await aio_pika.connect_robust(broker.url(), reconnect_interval=0.2)
        async with connection:
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=10)
            queue = await channel.declare_queue("robust", durable=True)
            seen: asyncio.Queue[bytes] = asyncio.Queue()

            async def note(message: AbstractIncomingMessage) -> None:
                async with message.process():
                    seen.put_nowait(message.body)

            await queue.consume(note)
            await channel.default_exchange.publish(aio_pika.Message(b"before"), routing_key="robust")
            assert await asyncio.wait_for(seen.get(), SECONDS) == b"before"
            await asyncio.to_thread(process.restart)
            async with await aio_pika.connect(broker.url()) as other:
                sender = await other.channel()
                await sender.default_exchange.publish(aio_pika.Message(b"after"), routing_key="robust")
            assert await asyncio.wait_for(seen.get(), 30) == b"after"
