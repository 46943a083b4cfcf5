"""Publishing: from the bytes of a publish method to queues, with what was found out before kept.

A publisher sends the same method frame again and again, so the frame's bytes are the key under which it is
remembered where its messages go. What is remembered is thrown away when the topology changes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, cast

from pamqp import commands

from headwater.broker.queues.names import REPLY_QUEUE
from headwater.broker.queues.queue import Queue
from headwater.core.amqp import AmqpError, ReplyCode
from headwater.net.amqp.channel import Channel
from headwater.record.amqp.message import PROPERTIES_AT, Message, encode_address, known_facts
from headwater.record.amqp.properties import Facts, Properties
from headwater.record.amqp.tables import Table
from headwater.wire.amqp.methods import decode_method, encode_method, make

if TYPE_CHECKING:
    from headwater.broker.queues.routing import Route
    from headwater.net.amqp.connection import AmqpConnection

__all__ = ["HeldBack", "Publishing", "Target"]

_KEPT = 1024
_PUBLISH = 60, 40
_AROUND = 16
"""What is around a header's payload and a body in their two frames."""
_ONE_FRAME = 120_000
_HELD_OVERHEAD = 200
"""What a message that a transaction holds back takes in memory besides its content, about."""
MANAGEMENT = "amq.headwater.management"
_HAS_REPLY_TO = 0x0200


@lru_cache(maxsize=4096)
def _known(raw: bytes) -> tuple[Facts, bool]:
    """Return what matters of a message's properties, and whether that is only if it is to be kept."""
    facts = known_facts(raw)
    asks = bool(int.from_bytes(raw[:2], "big") & _HAS_REPLY_TO) and REPLY_QUEUE.encode() in raw
    return facts, facts.expiration_ms is None and not facts.headers and not facts.user_id and not asks


class Target:
    """Where the messages of one publish method go."""

    __slots__ = ("address", "channel", "exchange", "mandatory", "queues", "route", "routing_key", "simple")

    def __init__(self, channel: Channel, exchange: str, routing_key: str, *, mandatory: bool) -> None:
        self.channel = channel
        self.exchange = exchange
        self.routing_key = routing_key
        self.mandatory = mandatory
        self.address = encode_address(exchange, routing_key)
        self.queues: tuple[Queue, ...] = ()
        self.route: Route | None = None
        """None where each message is routed by itself."""
        self.simple: Queue | None = None
        """The one queue, where there is nothing else to look at."""


HeldBack = tuple[Target, Message, "Route | None", tuple[Queue, ...]]
"""A message of a transaction that is not committed, with where it goes: both were found right when it came."""


class Publishing:
    """The publishing side of a connection."""

    def __init__(self, connection: AmqpConnection) -> None:
        self._connection = connection
        self._service = connection.service
        self._targets: dict[bytes, Target] = {}
        self._version = -1
        self._counters = connection.node.counters

    def forget(self) -> None:
        """Forget all targets, since a channel is gone."""
        self._targets.clear()

    def publish(self, method: bytes, contents: list[bytes], header_size: int) -> None:
        """Put messages where their method says."""
        service = self._service
        self._counters.messages_published += len(contents)
        if self._version != service.definitions.version:
            self._targets.clear()
            self._version = service.definitions.version
        target = self._targets.get(method)
        if target is None:
            if self._connection.full:
                self._connection.stall(method, contents, header_size)
                return
            target = self._find(method)
            if target is None:
                return
        try:
            queue = target.simple
            if queue is None or target.channel.careful:
                for content in contents:
                    self._publish_one(target, content, header_size)
                return
            end = 7 + header_size
            raw = contents[0][PROPERTIES_AT:end]
            same = [content for content in contents if content[PROPERTIES_AT:end] == raw]
            if len(same) == len(contents):
                self._publish_plain(target, queue, contents, raw, header_size)
                return
            for content in contents:
                self._publish_plain(target, queue, [content], content[PROPERTIES_AT:end], header_size)
        except AmqpError as error:
            error.class_id, error.method_id = _PUBLISH
            self._connection.fail_channel(target.channel, error)

    def _publish_plain(
        self, target: Target, queue: Queue, contents: list[bytes], raw: bytes, header_size: int
    ) -> None:
        """Put messages with the same properties into the one queue that they go to."""
        facts, plain = _known(raw)
        if not plain:
            for content in contents:
                self._publish_one(target, content, header_size)
            return
        channel, service, address = target.channel, self._service, target.address
        if channel.confirms:
            channel.published += len(contents)
            service.confirming[channel] = None
            if facts.persistent:
                channel.stored = True
        consumer = queue.open_to(len(contents), persistent=facts.persistent)
        if consumer is not None and consumer.no_ack:
            receiver = cast(Channel, consumer.receiver)
            if receiver.number == channel.number and max(map(len, contents)) <= receiver.connection.frame_max:
                receiver.pass_on(consumer, address, contents)
                return
        around = header_size + _AROUND
        messages = [Message(address, content, facts, _body_size(content, around)) for content in contents]
        if consumer is not None:
            queue.give(consumer, messages)
            return
        queue.lane.push_all(messages)
        service.dirty[queue] = None

    def _publish_one(self, target: Target, content: bytes, header_size: int) -> None:
        channel = target.channel
        if channel.closing:
            return
        if channel.tx_publishes is not None:
            channel.tx_publishes.append((target, *self._read(target, content, header_size)))
            size = len(content) + _HELD_OVERHEAD
            channel.tx_bytes += size
            self._connection.held_back += size
            return
        if channel.confirms:
            channel.published += 1
            self._service.confirming[channel] = None
            if known_facts(content[PROPERTIES_AT : 7 + header_size]).persistent:
                channel.stored = True
        self._put(target, *self._read(target, content, header_size))

    def _find(self, method: bytes) -> Target | None:
        connection = self._connection
        number = int.from_bytes(method[1:3], "big")
        channel = connection.channel(number)
        if channel is None:
            return None
        try:
            command = decode_method(method[7:-1])
            assert isinstance(command, commands.Basic.Publish), "the parser knows it by its number"
            if command.immediate:
                raise AmqpError(ReplyCode.NOT_IMPLEMENTED, "immediate=true", 60, 40)
            target = Target(channel, command.exchange, command.routing_key, mandatory=bool(command.mandatory))
            self._service.definitions.check_publish(connection.vhost, target.exchange)
            self._route(target)
        except AmqpError as error:
            error.class_id, error.method_id = _PUBLISH
            connection.fail_channel(channel, error)
            return None
        if len(self._targets) >= _KEPT:
            self._targets.clear()
        self._targets[method] = target
        return target

    def _route(self, target: Target) -> None:
        service, vhost = self._service, self._connection.vhost
        if _needs_no_queue(target):
            return
        probe: list[bool] = []

        def headers() -> Table:
            probe.append(True)
            return {}

        route = service.definitions.route(vhost, target.exchange, target.routing_key, headers)
        if not route.cacheable or probe:
            return
        target.route = route
        target.queues = service.queues_of(route)
        if len(target.queues) == 1 and not route.topics and not route.delayed and target.queues[0].plain:
            target.simple = target.queues[0]

    def _read(
        self, target: Target, content: bytes, header_size: int
    ) -> tuple[Message, Route | None, tuple[Queue, ...]]:
        """Return a message about which more has to be known than where its exchange sends it, and where it goes.

        It has no route where it is no matter of queues: a reply, or a question to the management.
        """
        connection, channel = self._connection, target.channel
        raw = content[PROPERTIES_AT : 7 + header_size]
        facts = known_facts(raw)
        message = Message(target.address, content, facts, int.from_bytes(content[11:19], "big"))
        properties: Properties | None = None
        if facts.user_id:
            properties = message.properties()
            if properties.user_id != connection.user:
                text = (
                    f"user_id property set to '{properties.user_id}' "
                    f"but authenticated user was '{connection.user}'"
                )
                raise AmqpError(ReplyCode.PRECONDITION_FAILED, text, 60, 40)
        if int.from_bytes(raw[:2], "big") & _HAS_REPLY_TO:
            properties = properties or message.properties()
            if properties.reply_to == REPLY_QUEUE:
                if channel.reply_tag is None:
                    raise AmqpError(ReplyCode.PRECONDITION_FAILED, "fast reply consumer does not exist")
                properties.reply_to = f"{REPLY_QUEUE}.{channel.reply_token}"
                message = message.rewritten(target.address, properties)
        if _needs_no_queue(target):
            return message, None, ()
        route, message = self._routed(target, message, properties)
        return message, route, self._service.queues_of(route)

    def _put(self, target: Target, message: Message, route: Route | None, queues: tuple[Queue, ...]) -> None:
        """Put a message where it goes, or give it back to a publisher that insists."""
        if route is None:
            if target.routing_key == MANAGEMENT:
                self._service.manage(self._connection, message)
            else:
                self._reply(target, message)
        elif queues or route.topics or route.delayed:
            self._service.place(message, queues, route.topics, route, target.channel)
        elif target.mandatory:
            self._return(target, message)

    def _routed(
        self, target: Target, message: Message, properties: Properties | None
    ) -> tuple[Route, Message]:
        """Return where a message goes, with the further keys in its headers, and as it goes there."""
        headers: Table = {}
        if message.facts.headers:
            properties = properties or message.properties()
            headers = properties.headers or {}
        copies = [*_keys(headers, "CC"), *_keys(headers, "BCC")]
        route = target.route
        if route is None or copies:
            route = self._service.definitions.route(
                self._connection.vhost,
                target.exchange,
                target.routing_key,
                lambda: headers,
                copies=copies,
                property_named=lambda name: getattr(properties or message.properties(), name),
            )
        if "BCC" in headers:
            assert properties is not None, "its headers were looked at"
            properties.headers = {name: value for name, value in headers.items() if name != "BCC"}
            message = message.rewritten(target.address, properties)
        return route, message

    def _reply(self, target: Target, message: Message) -> None:
        asker = self._service.asker(target.routing_key)
        if asker is not None:
            asker.deliver_reply(message)
        elif target.mandatory:
            self._return(target, message)

    def _return(self, target: Target, message: Message) -> None:
        returned = make(
            commands.Basic.Return,
            reply_code=int(ReplyCode.NO_ROUTE),
            reply_text="NO_ROUTE",
            exchange=target.exchange,
            routing_key=target.routing_key,
        )
        self._counters.messages_returned += 1
        number = target.channel.number
        frames = message.frames_for(number, self._connection.frame_max)
        self._connection.send([encode_method(number, returned), frames], len(frames))

    def commit(self, publishes: list[HeldBack]) -> None:
        """Publish what a transaction has held back, to those of its queues that are still there."""
        for target, message, route, queues in publishes:
            self._put(target, message, route, tuple(queue for queue in queues if not queue.deleted))


def _needs_no_queue(target: Target) -> bool:
    key = target.routing_key
    return target.exchange == "" and (key == MANAGEMENT or key.startswith(REPLY_QUEUE + "."))


def _body_size(content: bytes, around: int) -> int:
    """Return how long a body is: what is left of the frames where it is in one, else what the header says."""
    size = len(content) - around
    return max(size, 0) if size < _ONE_FRAME else int.from_bytes(content[11:19], "big")


def _keys(headers: Table, name: str) -> list[str]:
    keys = headers.get(name)
    if keys is None:
        return []
    if not isinstance(keys, list):
        raise AmqpError(ReplyCode.PRECONDITION_FAILED, f"invalid type of header '{name}': expected an array")
    return [key for key in keys if isinstance(key, str)]
