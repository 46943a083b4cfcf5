"""What channels are asked: declarations, consumers, and everything else that is not publish or ack."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pamqp import commands

from headwater.broker.queues.consumers import Consumer
from headwater.broker.queues.equivalence import type_name
from headwater.broker.queues.names import REPLY_QUEUE, not_found, server_name, stripped
from headwater.broker.queues.queue import Queue
from headwater.core.amqp import AmqpError, ReplyCode
from headwater.net.amqp.channel import UNLIMITED, Channel
from headwater.wire.amqp.methods import AccessRequest, AccessRequestOk, encode_method, make

if TYPE_CHECKING:
    from headwater.broker.state import StateRecord

__all__ = ["HANDLERS"]

Handler = Callable[[Channel, Any], None]


def _answer(channel: Channel, command: Any, reply: Any, records: list[StateRecord] | None = None) -> None:
    """Apply a change and answer, when the change is on disk, unless the client wants no answer."""
    connection = channel.connection
    waits = channel.service.change(records or [])
    nowait = getattr(command, "nowait", False)

    def answer() -> None:
        if not nowait:
            connection.command(channel.number, reply() if callable(reply) else reply)

    if waits and not nowait:
        connection.after_sync(answer)
    else:
        answer()


def _queue(channel: Channel, name: str) -> Queue:
    """Return a queue that this connection may use."""
    service, connection = channel.service, channel.connection
    definition = service.definitions.queue_for(connection.vhost, name, connection.number)
    queue = service.queues[connection.vhost, definition.name]
    queue.used_ms = service.now_ms()
    return queue


def _named(channel: Channel, name: str) -> str:
    """Return the queue that an empty name stands for: the last one that was declared on the channel."""
    if name:
        return name
    if not channel.last_queue:
        raise AmqpError(ReplyCode.NOT_FOUND, "no previously declared queue")
    return channel.last_queue


def _bound(channel: Channel, command: commands.Queue.Bind | commands.Queue.Unbind) -> tuple[str, str]:
    """Return the queue and the routing key of a binding; with neither given, the last queue is both."""
    queue = _named(channel, command.queue)
    return queue, command.routing_key or ("" if command.queue else queue)


# -- channels ------------------------------------------------------------------------------------


def channel_close(channel: Channel, command: commands.Channel.Close) -> None:
    """Close the channel."""
    channel.connection.close_channel(channel)


def channel_flow(channel: Channel, command: commands.Channel.Flow) -> None:
    """Refuse to be told to be silent, as RabbitMQ does; prefetch does that."""
    if not command.active:
        raise AmqpError(ReplyCode.NOT_IMPLEMENTED, "active=false")
    channel.connection.command(channel.number, make(commands.Channel.FlowOk, active=True))


def access_request(channel: Channel, command: AccessRequest) -> None:
    """Grant what nobody has to ask for any more."""
    channel.connection.command(channel.number, make(AccessRequestOk, ticket=1))


# -- exchanges -----------------------------------------------------------------------------------


def exchange_declare(channel: Channel, command: commands.Exchange.Declare) -> None:
    """Declare an exchange."""
    records = channel.service.definitions.declare_exchange(
        channel.connection.vhost,
        command.exchange,
        command.exchange_type,
        passive=bool(command.passive),
        durable=bool(command.durable),
        auto_delete=bool(command.auto_delete),
        internal=bool(command.internal),
        arguments=command.arguments,
    )
    _answer(channel, command, make(commands.Exchange.DeclareOk), records)


def exchange_delete(channel: Channel, command: commands.Exchange.Delete) -> None:
    """Delete an exchange."""
    records = channel.service.definitions.delete_exchange(
        channel.connection.vhost, command.exchange, if_unused=bool(command.if_unused)
    )
    _answer(channel, command, make(commands.Exchange.DeleteOk), records)


def exchange_bind(channel: Channel, command: commands.Exchange.Bind) -> None:
    """Bind an exchange to another."""
    records = channel.service.definitions.bind(
        channel.connection.vhost, command.source, command.destination, "exchange", command.routing_key,
        command.arguments,
    )  # fmt: skip
    _answer(channel, command, make(commands.Exchange.BindOk), records)


def exchange_unbind(channel: Channel, command: commands.Exchange.Unbind) -> None:
    """Take a binding of an exchange back."""
    records = channel.service.definitions.unbind(
        channel.connection.vhost, command.source, command.destination, "exchange", command.routing_key,
        command.arguments,
    )  # fmt: skip
    _answer(channel, command, make(commands.Exchange.UnbindOk), records)


# -- queues --------------------------------------------------------------------------------------


def queue_declare(channel: Channel, command: commands.Queue.Declare) -> None:
    """Declare a queue, or look at one."""
    service, connection = channel.service, channel.connection
    name, server_named = command.queue, False
    if not name and not command.passive:
        name, server_named = server_name(service.random_bytes()), True
    elif not name:
        name = _named(channel, name)
    if name == REPLY_QUEUE or name.startswith(REPLY_QUEUE + "."):
        if name != REPLY_QUEUE and service.asker(name) is None:
            raise not_found("queue", name, connection.vhost)
        _answer(channel, command, make(commands.Queue.DeclareOk, queue=name, consumer_count=1))
        return
    if not command.passive:
        service.bridge.check(command.arguments)
    records = service.definitions.declare_queue(
        connection.vhost,
        name,
        owner=connection.number,
        passive=bool(command.passive),
        durable=bool(command.durable),
        exclusive=bool(command.exclusive),
        auto_delete=bool(command.auto_delete),
        arguments=command.arguments,
        server_named=server_named,
    )

    def declared() -> Any:
        queue = service.queues[connection.vhost, channel.last_queue]
        return make(
            commands.Queue.DeclareOk,
            queue=channel.last_queue,
            message_count=len(queue),
            consumer_count=len(queue.consumers),
        )

    transient = bool(records) and not command.durable
    waits = service.change(records)
    channel.last_queue = _queue(channel, stripped(name)).definition.name
    if command.nowait:
        return
    if waits and not transient:
        connection.after_sync(lambda: connection.command(channel.number, declared()))
    else:
        connection.command(channel.number, declared())


def queue_bind(channel: Channel, command: commands.Queue.Bind) -> None:
    """Bind a queue to an exchange."""
    queue, routing_key = _bound(channel, command)
    records = channel.service.definitions.bind(
        channel.connection.vhost, command.exchange, queue, "queue", routing_key, command.arguments,
        owner=channel.connection.number,
    )  # fmt: skip
    _answer(channel, command, make(commands.Queue.BindOk), records)


def queue_unbind(channel: Channel, command: commands.Queue.Unbind) -> None:
    """Take a binding of a queue back."""
    queue, routing_key = _bound(channel, command)
    records = channel.service.definitions.unbind(
        channel.connection.vhost, command.exchange, queue, "queue", routing_key, command.arguments,
        owner=channel.connection.number,
    )  # fmt: skip
    _answer(channel, command, make(commands.Queue.UnbindOk), records)


def queue_purge(channel: Channel, command: commands.Queue.Purge) -> None:
    """Drop everything that waits in a queue."""
    count = _queue(channel, _named(channel, command.queue)).purge()
    _answer(channel, command, make(commands.Queue.PurgeOk, message_count=count))


def queue_delete(channel: Channel, command: commands.Queue.Delete) -> None:
    """Delete a queue."""
    service, connection = channel.service, channel.connection
    name = _named(channel, command.queue)
    found = service.queues.get((connection.vhost, name))
    records = service.definitions.delete_queue(connection.vhost, name, owner=connection.number)
    count = 0
    if found is not None:
        count = len(found)
        if command.if_unused and len(found.consumers):
            raise AmqpError(ReplyCode.PRECONDITION_FAILED, f"{found.definition} in use")
        if command.if_empty and count:
            raise AmqpError(ReplyCode.PRECONDITION_FAILED, f"{found.definition} not empty")
    _answer(channel, command, make(commands.Queue.DeleteOk, message_count=count), records)


# -- consuming -----------------------------------------------------------------------------------


def basic_qos(channel: Channel, command: commands.Basic.Qos) -> None:
    """Limit what is delivered and not acknowledged: for each later consumer, or for the whole channel."""
    if command.prefetch_size:
        raise AmqpError(ReplyCode.NOT_IMPLEMENTED, f"prefetch_size!=0 ({command.prefetch_size})")
    if command.global_:
        channel.prefetch = command.prefetch_count
        held = sum(1 for message in channel.unacked.values() if message.consumer.tag)
        channel.room = command.prefetch_count - held if command.prefetch_count else UNLIMITED
        for consumer in channel.consumers.values():
            channel.service.touch(consumer.queue)
    else:
        channel.default_prefetch = command.prefetch_count
    channel.connection.command(channel.number, make(commands.Basic.QosOk))


def basic_consume(channel: Channel, command: commands.Basic.Consume) -> None:
    """Begin to consume from a queue."""
    tag = command.consumer_tag or server_name(channel.service.random_bytes()).replace("amq.gen", "amq.ctag")
    if tag in channel.consumers or tag == channel.reply_tag:
        raise AmqpError(ReplyCode.NOT_ALLOWED, f"attempt to reuse consumer tag '{tag}'")
    name = _named(channel, command.queue)
    if name == REPLY_QUEUE:
        _consume_replies(channel, command, tag)
        return
    queue = _queue(channel, name)
    priority = command.arguments.get("x-priority", 0) if command.arguments else 0
    if not isinstance(priority, int) or isinstance(priority, bool):
        problem = f'"expected integer, got {type_name(priority)}"'
        raise AmqpError(
            ReplyCode.PRECONDITION_FAILED, f"invalid arg 'x-priority' for {queue.definition}: {problem}"
        )
    consumer = Consumer(
        queue,
        channel,
        tag,
        no_ack=bool(command.no_ack),
        exclusive=bool(command.exclusive),
        prefetch=0 if command.no_ack else channel.default_prefetch,
        priority=priority,
    )
    queue.add_consumer(consumer)
    channel.consumers[tag] = consumer
    if not command.nowait:
        channel.connection.command(channel.number, make(commands.Basic.ConsumeOk, consumer_tag=tag))
    channel.service.touch(queue)


def _consume_replies(channel: Channel, command: commands.Basic.Consume, tag: str) -> None:
    if channel.reply_tag is not None:
        raise AmqpError(ReplyCode.PRECONDITION_FAILED, "reply consumer already set")
    if not command.no_ack:
        raise AmqpError(ReplyCode.PRECONDITION_FAILED, "reply consumer cannot acknowledge")
    channel.reply_tag = tag
    channel.reply_token = channel.service.random_bytes().hex()
    channel.service.replies[channel.reply_token] = channel
    if not command.nowait:
        channel.connection.command(channel.number, make(commands.Basic.ConsumeOk, consumer_tag=tag))


def basic_cancel(channel: Channel, command: commands.Basic.Cancel) -> None:
    """Stop consuming; what was delivered stays delivered."""
    consumer = channel.consumers.pop(command.consumer_tag or "", None)
    if consumer is not None:
        channel.remove_consumer(consumer)
    elif channel.reply_tag is not None and command.consumer_tag == channel.reply_tag:
        channel.service.replies.pop(channel.reply_token, None)
        channel.reply_tag = None
    _answer(channel, command, make(commands.Basic.CancelOk, consumer_tag=command.consumer_tag))


def basic_get(channel: Channel, command: commands.Basic.Get) -> None:
    """Take one message."""
    queue = _queue(channel, _named(channel, command.queue))
    consumer = Consumer(queue, channel, "", no_ack=bool(command.no_ack))
    # What expires now is gone: only a consumer that waited for it would have had it.
    message = queue.get(consumer, channel.service.now_ms() + 1)
    connection = channel.connection
    if queue.dead:
        channel.service.touch(queue)
    if message is None:
        connection.command(channel.number, make(commands.Basic.GetEmpty))
        return
    redelivered = message.deliveries > 0
    tag, frames = channel.handed(message, consumer)
    found = make(
        commands.Basic.GetOk,
        delivery_tag=tag,
        redelivered=redelivered,
        exchange=message.exchange,
        routing_key=message.routing_key,
        message_count=len(queue),
    )
    connection.send([encode_method(channel.number, found), frames], len(frames))


def basic_reject(channel: Channel, command: commands.Basic.Reject) -> None:
    """Give a message back, or have it dead-lettered."""
    _reject(channel, command.delivery_tag or 0, multiple=False, requeue=bool(command.requeue))


def basic_nack(channel: Channel, command: commands.Basic.Nack) -> None:
    """Give messages back, or have them dead-lettered."""
    _reject(channel, command.delivery_tag, multiple=bool(command.multiple), requeue=bool(command.requeue))


def _reject(channel: Channel, tag: int, *, multiple: bool, requeue: bool) -> None:
    if channel.tx_publishes is not None:
        channel.hold_back(tag, "requeue" if requeue else "reject", multiple=multiple)
        return
    channel.give_back(channel.take(tag, multiple=multiple), requeue=requeue)


def basic_recover(channel: Channel, command: commands.Basic.Recover) -> None:
    """Give everything back that was not acknowledged."""
    if not command.requeue:
        raise AmqpError(ReplyCode.NOT_IMPLEMENTED, "requeue=false")
    channel.give_back(channel.take(0, multiple=True), requeue=True)
    channel.connection.command(channel.number, make(commands.Basic.RecoverOk))


def basic_recover_async(channel: Channel, command: commands.Basic.RecoverAsync) -> None:
    """Give everything back that was not acknowledged, without an answer."""
    if not command.requeue:
        raise AmqpError(ReplyCode.NOT_IMPLEMENTED, "requeue=false")
    channel.give_back(channel.take(0, multiple=True), requeue=True)


# -- confirms and transactions -------------------------------------------------------------------


def confirm_select(channel: Channel, command: commands.Confirm.Select) -> None:
    """Have what is published from here on confirmed."""
    if channel.tx_publishes is not None:
        raise AmqpError(ReplyCode.PRECONDITION_FAILED, "cannot switch from tx to confirm mode")
    channel.confirms = True
    _answer(channel, command, make(commands.Confirm.SelectOk))


def tx_select(channel: Channel, command: commands.Tx.Select) -> None:
    """Hold publishes and acknowledgements back from here on, until they are committed."""
    if channel.confirms:
        raise AmqpError(ReplyCode.PRECONDITION_FAILED, "cannot switch from confirm to tx mode")
    if channel.tx_publishes is None:
        channel.tx_publishes = []
    channel.careful = True
    channel.connection.command(channel.number, make(commands.Tx.SelectOk))


def tx_commit(channel: Channel, command: commands.Tx.Commit) -> None:
    """Do what was held back, and answer when it is on disk."""
    connection = channel.connection
    publishes, acks = _begin_again(channel)
    connection.commit(publishes)
    channel.settle_held(acks)
    channel.service.write_all()
    connection.after_sync(lambda: connection.command(channel.number, make(commands.Tx.CommitOk)))


def tx_rollback(channel: Channel, command: commands.Tx.Rollback) -> None:
    """Forget what was held back."""
    _begin_again(channel)
    channel.connection.command(channel.number, make(commands.Tx.RollbackOk))


def _begin_again(channel: Channel) -> tuple[list[Any], dict[int, str]]:
    if channel.tx_publishes is None:
        raise AmqpError(ReplyCode.PRECONDITION_FAILED, "channel is not transactional")
    held = channel.tx_publishes, channel.tx_acks
    channel.tx_publishes, channel.tx_acks = [], {}
    channel.forget_held()
    return held


HANDLERS: dict[type[Any], Handler] = {
    commands.Channel.Close: channel_close,
    commands.Channel.Flow: channel_flow,
    AccessRequest: access_request,
    commands.Exchange.Declare: exchange_declare,
    commands.Exchange.Delete: exchange_delete,
    commands.Exchange.Bind: exchange_bind,
    commands.Exchange.Unbind: exchange_unbind,
    commands.Queue.Declare: queue_declare,
    commands.Queue.Bind: queue_bind,
    commands.Queue.Unbind: queue_unbind,
    commands.Queue.Purge: queue_purge,
    commands.Queue.Delete: queue_delete,
    commands.Basic.Qos: basic_qos,
    commands.Basic.Consume: basic_consume,
    commands.Basic.Cancel: basic_cancel,
    commands.Basic.Get: basic_get,
    commands.Basic.Reject: basic_reject,
    commands.Basic.Nack: basic_nack,
    commands.Basic.Recover: basic_recover,
    commands.Basic.RecoverAsync: basic_recover_async,
    commands.Confirm.Select: confirm_select,
    commands.Tx.Select: tx_select,
    commands.Tx.Commit: tx_commit,
    commands.Tx.Rollback: tx_rollback,
}
