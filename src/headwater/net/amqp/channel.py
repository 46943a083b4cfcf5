"""A channel: what it consumes, what it has not acknowledged, and what it wants confirmed."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pamqp import commands

from headwater.broker.queues.consumers import Consumer
from headwater.broker.queues.queue import Queue
from headwater.core.amqp import AmqpError, ReplyCode
from headwater.record.amqp.message import Message
from headwater.record.amqp.tables import Long
from headwater.wire.amqp.constants import BASIC_ACK, BASIC_DELIVER, BASIC_NACK, METHOD
from headwater.wire.amqp.methods import encode_method, make

if TYPE_CHECKING:
    from headwater.net.amqp.connection import AmqpConnection
    from headwater.net.amqp.publishing import HeldBack

__all__ = ["Channel"]

UNLIMITED = 1 << 40
_FRAME = struct.Struct(">BHI")
_TAG = struct.Struct(">QB")
_CONFIRM = struct.Struct(">BHIIQBB")
_END = b"\xce"
_FRAME_END = 0xCE
_DELIVER_FIXED = 14
_CONFIRM_SIZE = 13


class Channel:
    """One open channel of a connection."""

    __slots__ = (
        "_confirmed",
        "_next_tag",
        "_refused",
        "_settled",
        "_waiting",
        "careful",
        "choked",
        "closing",
        "confirms",
        "connection",
        "consumers",
        "default_prefetch",
        "last_queue",
        "number",
        "prefetch",
        "published",
        "reply_tag",
        "reply_token",
        "room",
        "service",
        "stored",
        "tx_acks",
        "tx_bytes",
        "tx_publishes",
        "unacked",
    )

    def __init__(self, connection: AmqpConnection, number: int) -> None:
        self.connection = connection
        self.service = connection.service
        self.number = number
        self.closing = False
        """Whether we have closed it and wait for the client to know."""
        self.consumers: dict[str, Consumer] = {}
        self.unacked: dict[int, Message] = {}
        """What was delivered and not settled, by delivery tag, in order."""
        self.last_queue = ""
        """The queue that was declared last, which an empty name stands for."""
        self.default_prefetch = 0
        self.prefetch = 0
        """How many unacknowledged messages all consumers together take; 0 for any number."""
        self.room = UNLIMITED
        self.choked = connection.choked
        self.careful = False
        """Whether its publishes need a closer look: they are part of a transaction."""
        self.confirms = False
        self.published = 0
        """The number of messages published since confirms were asked for."""
        self.stored = False
        """Whether one of those of this turn has to get to the disk."""
        self.reply_tag: str | None = None
        self.reply_token = ""
        self.tx_publishes: list[HeldBack] | None = None
        self.tx_bytes = 0
        """The memory of what a transaction holds back."""
        self.tx_acks: dict[int, str] = {}
        """What a transaction does with unacknowledged messages, by delivery tag."""
        self._next_tag = 0
        self._settled = 0
        """The tag up to which nothing is unacknowledged: there may be very many that are."""
        self._confirmed = 0
        self._refused: list[int] = []
        self._waiting = 0

    # -- deliveries ------------------------------------------------------------------------------

    def deliver(self, consumer: Consumer, messages: Sequence[Message]) -> None:
        """Send messages to a consumer."""
        connection, number = self.connection, self.number
        tag, unacked, pack = self._next_tag, self.unacked, _TAG.pack
        frame_max = connection.frame_max
        high, low = divmod(number, 256)
        counts, keep = consumer.queue.counts, not consumer.no_ack
        out: list[bytes] = []
        size = 0
        last = prefix = suffix = b""
        for message in messages:
            tag += 1
            address = message.address
            if address is not last:
                last, suffix = address, address + _END
                prefix = consumer.prefix.get(len(address)) or self._prefix(consumer, len(address))
            frames = message.frames
            deliveries = message.deliveries
            if frames[2] != low or frames[1] != high or len(frames) > frame_max or (counts and deliveries):
                frames = self._frames(message, counts=counts)
            if keep:
                unacked[tag] = message
                message.consumer = consumer
            out += (prefix, pack(tag, deliveries > 0), suffix, frames)
            size += len(frames)
        self._next_tag = tag
        connection.send(out, size + 64 * len(messages))
        counters = connection.node.counters
        counters.messages_delivered += len(messages)
        if keep:
            counters.messages_to_acknowledge += len(messages)

    def pass_on(self, consumer: Consumer, address: bytes, contents: list[bytes]) -> None:
        """Send new messages, whose frames have this channel's number, to a consumer that acknowledges nothing."""
        tag, pack, suffix = self._next_tag, _TAG.pack, address + _END
        prefix = consumer.prefix.get(len(address)) or self._prefix(consumer, len(address))
        out: list[bytes] = []
        for content in contents:
            tag += 1
            out += (prefix, pack(tag, 0), suffix, content)
        self._next_tag = tag
        self.connection.send(out, sum(map(len, contents)) + 64 * len(contents))
        self.connection.node.counters.messages_delivered += len(contents)

    def _prefix(self, consumer: Consumer, length: int) -> bytes:
        tag = consumer.tag.encode("utf-8", "surrogateescape")
        size = _DELIVER_FIXED + len(tag) + length
        prefix = b"".join(
            (
                _FRAME.pack(METHOD, self.number, size),
                BASIC_DELIVER.to_bytes(4, "big"),
                bytes((len(tag),)),
                tag,
            )
        )
        consumer.prefix[length] = prefix
        return prefix

    def _frames(self, message: Message, *, counts: bool) -> bytes:
        if counts and message.deliveries:
            message = self._counted(message)
        return message.frames_for(self.number, self.connection.frame_max)

    @staticmethod
    def _counted(message: Message) -> Message:
        properties = message.properties()
        properties.headers = {**(properties.headers or {}), "x-delivery-count": Long(message.deliveries)}
        return message.rewritten(message.address, properties)

    def handed(self, message: Message, consumer: Consumer) -> tuple[int, bytes]:
        """Return the delivery tag and the content frames of a message that a basic.get has taken."""
        tag = self.next_tag()
        self.connection.node.counters.messages_delivered += 1
        if not consumer.no_ack:
            self.connection.node.counters.messages_to_acknowledge += 1
            self.unacked[tag] = message
            message.consumer = consumer
        if consumer.queue.counts:
            return tag, self._counted(message).frames_for(self.number, self.connection.frame_max)
        return tag, message.frames_for(self.number, self.connection.frame_max)

    def next_tag(self) -> int:
        """Return the tag of the next delivery."""
        self._next_tag += 1
        return self._next_tag

    def deliver_reply(self, message: Message) -> None:
        """Give the answer to a question that was asked on this channel."""
        assert self.reply_tag is not None, "it consumes replies"
        deliver = make(
            commands.Basic.Deliver,
            consumer_tag=self.reply_tag,
            delivery_tag=self.next_tag(),
            exchange=message.exchange,
            routing_key=message.routing_key,
        )
        frames = message.frames_for(self.number, self.connection.frame_max)
        self.connection.send([encode_method(self.number, deliver), frames], len(frames))

    # -- settling --------------------------------------------------------------------------------

    def acknowledge(self, tag: int, multiple: int) -> None:
        """Settle what a client has consumed."""
        if self.tx_publishes is not None:
            self.hold_back(tag, "ack", multiple=bool(multiple))
            return
        if not multiple:
            message = self.unacked.pop(tag, None)
            if message is None:
                raise _unknown_tag(tag)
            self._acknowledge(message)
            return
        for message in self.take(tag, multiple=True):
            self._acknowledge(message)

    def _acknowledge(self, message: Message) -> None:
        consumer = message.consumer
        queue = consumer.queue
        queue.acknowledge(message)
        self.released(consumer, queue)

    def released(self, consumer: Consumer, queue: Queue) -> None:
        """Count a message out that is unacknowledged no more."""
        consumer.unacked -= 1
        if not consumer.tag:
            return  # a basic.get takes none of the room
        limited = self.room
        self.room = limited + 1
        if consumer.prefetch and consumer.unacked < consumer.prefetch:
            self.service.dirty[queue] = None
        if self.prefetch and limited <= 0:
            for other in self.consumers.values():
                self.service.dirty[other.queue] = None

    def take(self, tag: int, *, multiple: bool) -> list[Message]:
        """Take unacknowledged messages out, to be settled; raises `AmqpError` for a tag that is none."""
        tags = self._tags(tag, multiple=multiple)
        if multiple:
            self._settled = max(self._settled, tag)
        return [self.unacked.pop(each) for each in tags]

    def _tags(self, tag: int, *, multiple: bool) -> list[int]:
        """Return the tags of the messages that are meant; what a transaction has settled is none of them."""
        unacked, held = self.unacked, self.tx_acks
        if multiple and tag == 0:
            return [each for each in unacked if each not in held]
        if tag not in unacked or tag in held:
            raise _unknown_tag(tag)
        if not multiple:
            return [tag]
        return [each for each in range(self._settled + 1, tag + 1) if each in unacked and each not in held]

    def hold_back(self, tag: int, what: str, *, multiple: bool) -> None:
        """Do with messages what is asked when the transaction is committed."""
        self.tx_acks |= dict.fromkeys(self._tags(tag, multiple=multiple), what)

    def settle_held(self, acks: dict[int, str]) -> None:
        """Do with messages what a transaction has held back."""
        for tag, what in acks.items():
            message = self.unacked.pop(tag)
            if what == "ack":
                self._acknowledge(message)
            else:
                self.give_back([message], requeue=what == "requeue")

    def give_back(self, messages: Iterable[Message], *, requeue: bool) -> None:
        """Return messages to their queues, or have them dead-lettered."""
        given = list(messages)
        self.connection.node.counters.messages_given_back += len(given)
        for message in given:
            consumer = message.consumer
            queue = consumer.queue
            self.released(consumer, queue)
            if queue.deleted:
                continue
            if requeue:
                queue.requeue(message)
            else:
                queue.reject(message)
            self.service.touch(queue)

    # -- confirms --------------------------------------------------------------------------------

    def confirm_now(self, failure: str | None) -> bool:
        """Confirm what was published in this turn if it needs no disk; false if it has to wait."""
        if failure is None and (self.stored or self._waiting):
            self.stored = False
            self._waiting += 1
            return False
        self.stored = False
        self._send_confirms(self.published, failure)
        return True

    def confirm(self, tag: int, failure: str | None) -> None:
        """Confirm all up to a tag, which the disk has, or refuse it."""
        self._waiting -= 1
        self._send_confirms(tag, failure)

    def refuse(self, tag: int) -> None:
        """Have a message refused that no queue took."""
        self._refused.append(tag)

    def _send_confirms(self, tag: int, failure: str | None) -> None:
        if self.closing or tag <= self._confirmed:
            return
        frames = []
        counters = self.connection.node.counters
        if failure is not None:
            counters.messages_refused += tag - self._confirmed
            frames.append(self._confirm_frame(BASIC_NACK, tag, multiple=True))
            self._refused = [each for each in self._refused if each > tag]
        else:
            counters.messages_confirmed += tag - self._confirmed
            while self._refused and self._refused[0] <= tag:
                refused = self._refused.pop(0)
                if refused - 1 > self._confirmed:
                    frames.append(self._confirm_frame(BASIC_ACK, refused - 1, multiple=True))
                frames.append(self._confirm_frame(BASIC_NACK, refused, multiple=False))
                counters.messages_refused += 1
                counters.messages_confirmed -= 1
                self._confirmed = refused
            if tag > self._confirmed:
                frames.append(self._confirm_frame(BASIC_ACK, tag, multiple=tag - self._confirmed > 1))
        self._confirmed = tag
        self.connection.send(frames, 0)

    def _confirm_frame(self, method: int, tag: int, *, multiple: bool) -> bytes:
        return _CONFIRM.pack(METHOD, self.number, _CONFIRM_SIZE, method, tag, multiple, _FRAME_END)

    # -- end -------------------------------------------------------------------------------------

    def cancelled(self, consumer: Consumer) -> None:
        """Tell the client that a consumer's queue is gone."""
        self.consumers.pop(consumer.tag, None)
        self.connection.tell_cancelled(self, consumer.tag)

    def remove_consumer(self, consumer: Consumer) -> None:
        """Let a consumer go, and its queue with it where that was its last one."""
        if consumer.queue.deleted:
            return
        consumer.queue.used_ms = self.service.now_ms()
        if consumer.queue.remove_consumer(consumer):
            self.service.delete(consumer.queue)
        else:
            self.service.touch(consumer.queue)

    def forget_held(self) -> None:
        """Know that the transaction holds nothing back any more."""
        self.connection.held_back -= self.tx_bytes
        self.tx_bytes = 0

    def end(self) -> None:
        """Let go of consumers and give back what was not acknowledged."""
        consumers, self.consumers = self.consumers, {}
        for consumer in consumers.values():
            if not consumer.queue.deleted:
                consumer.queue.consumers.remove(consumer)
        unacked, self.unacked = self.unacked, {}
        self.give_back(unacked.values(), requeue=True)
        self.tx_publishes = None
        self.forget_held()
        for consumer in consumers.values():
            queue = consumer.queue
            if queue.deleted:
                continue
            queue.used_ms = self.service.now_ms()
            if queue.definition.auto_delete and not len(queue.consumers):
                self.service.delete(queue)
            else:
                self.service.touch(queue)
        if self.reply_tag is not None:
            self.service.replies.pop(self.reply_token, None)


def _unknown_tag(tag: int) -> AmqpError:
    return AmqpError(ReplyCode.PRECONDITION_FAILED, f"unknown delivery tag {tag}")
