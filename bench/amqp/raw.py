"""A client that does as little as can be: what it publishes is encoded beforehand, and it counts what it gets.

One thread writes to one connection and reads from another, whatever is ready, so that on few cores it is the
broker that is measured. Nothing is parsed: with a consumer tag and a routing key that do not change, a message
takes a known number of bytes when it is delivered, so the bytes tell how many messages came.
"""

from __future__ import annotations

import selectors
import struct
import time
from dataclasses import dataclass

from pamqp import commands

from bench.amqp.connection import CHANNEL, Connection, described
from bench.amqp.mix import Mix
from bench.clients import ClientError

QUEUE, TAG = "bench", "raw"
ACK_EVERY = 500
IN_FLIGHT = 20_000
CHUNK = 1 << 18
DRAIN_SECONDS = 60.0
_ACK_MULTIPLE = struct.Struct(">BHIHHQBB")
_BASIC, _ACK = 60, 80
_ACK_PAYLOAD = 13
_FRAME_METHOD, _FRAME_END = 1, 0xCE


@dataclass(frozen=True)
class Rate:
    """What a run came to."""

    messages: int
    """All that went through, those of the warm-up included."""
    received_per_second: float
    """After the warm-up."""


def run_raw(port: int, mix: Mix, warm: float, seconds: float) -> Rate:
    """Publish the mix over and over while consuming it with acknowledgements, some hundred at once."""
    with Connection(port) as publisher, Connection(port) as consumer:
        consume(consumer, mix)
        check_first_round(publisher, consumer, mix)
        return RawClient(publisher, consumer, mix).run(warm, seconds)


def consume(consumer: Connection, mix: Mix) -> None:
    """Declare the mix's queue, which goes with its consumer, and consume from it."""
    consumer.send(commands.Queue.Declare(queue=mix.queue, auto_delete=True))
    consumer.expect(commands.Queue.DeclareOk)
    consumer.send(commands.Basic.Consume(queue=mix.queue, consumer_tag=mix.tag))
    consumer.expect(commands.Basic.ConsumeOk)


def check_first_round(publisher: Connection, consumer: Connection, mix: Mix) -> None:
    """Publish one round, and compare every byte that comes back with what it should be."""
    publisher.socket.sendall(mix.published)
    came = consumer.read(len(mix.first_deliveries))
    if came != mix.first_deliveries:
        place = next(i for i, (a, b) in enumerate(zip(came, mix.first_deliveries, strict=True)) if a != b)
        around = slice(max(0, place - 40), place + 40)
        raise ClientError(
            f"message {mix.delivered(place) + 1} came back otherwise than it should:\n"
            f"{came[around]!r}\nis not\n{mix.first_deliveries[around]!r}"
        )
    consumer.socket.sendall(ack(mix.messages))


class RawClient:
    """A publisher and a consumer in one loop, after the first round went through."""

    def __init__(self, publisher: Connection, consumer: Connection, mix: Mix) -> None:
        self._publisher = publisher
        self._consumer = consumer
        self._mix = mix
        # Twice, so that a chunk that begins near the end of the round needs no second call.
        self._view = memoryview(mix.published * 2)
        self._round = len(mix.published)
        self._buffer = bytearray(4 * CHUNK)
        self._sent = self._round
        self._received = len(mix.first_deliveries)
        self._acknowledged = mix.messages
        self._selector = selectors.DefaultSelector()

    def run(self, warm: float, seconds: float) -> Rate:
        """Go on for the warm-up and the time that counts, then receive the rest and account for every message."""
        for connection in (self._publisher, self._consumer):
            connection.socket.setblocking(False)
            self._selector.register(connection.socket, selectors.EVENT_READ)
        with self._selector:
            first, began = self._until(time.monotonic() + warm)
            last, ended = self._until(time.monotonic() + seconds)
            self._drain()
        return Rate(self._mix.delivered(self._received), (last - first) / (ended - began))

    def _until(self, deadline: float) -> tuple[int, float]:
        while (now := time.monotonic()) < deadline:
            self._turn(self._room(), deadline - now)
        return self._mix.delivered(self._received), now

    def _room(self) -> int:
        """Return how many bytes may be sent now."""
        in_flight = self._mix.sent(self._sent) - self._mix.delivered(self._received)
        return CHUNK if in_flight < IN_FLIGHT else 0

    def _drain(self) -> None:
        """Send the rest of the message that was begun, and receive all that were sent."""
        messages = self._mix.sent(self._sent)
        if self._mix.publish_end(messages) != self._sent:
            messages += 1
        sent, received = self._mix.publish_end(messages), self._mix.delivery_end(messages)
        deadline = time.monotonic() + DRAIN_SECONDS
        while self._received < received:
            if (left := deadline - time.monotonic()) < 0:
                raise ClientError(f"{self._received} of {received} bytes came within {DRAIN_SECONDS:.0f} s")
            self._turn(sent - self._sent, left)
        if self._received > received:
            raise ClientError(f"{self._received} bytes came where {messages} messages have {received}")

    def _turn(self, room: int, seconds: float) -> None:
        """Wait until something can be done, and do it; `room` bytes may be sent."""
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if room else 0)
        key = self._selector.get_key(self._publisher.socket)
        if key.events != wanted:
            self._selector.modify(self._publisher.socket, wanted)
        for key, events in self._selector.select(seconds):
            if key.fileobj is self._consumer.socket:
                self._receive()
            elif events & selectors.EVENT_READ:
                self._refused()
            else:
                self._send(room)

    def _send(self, room: int) -> None:
        place = self._sent % self._round
        self._sent += self._publisher.socket.send(self._view[place : place + room])

    def _receive(self) -> None:
        size = self._consumer.socket.recv_into(self._buffer)
        if not size:
            raise ClientError("the broker closed the consumer's connection")
        self._received += size
        delivered = self._mix.delivered(self._received)
        if delivered - self._acknowledged >= ACK_EVERY:
            # A frame of 21 bytes fits unless the broker has not read for tens of thousands of them.
            self._consumer.socket.send(ack(delivered))
            self._acknowledged = delivered

    def _refused(self) -> None:
        """Say why the broker wrote to a connection that only publishes."""
        self._publisher.socket.setblocking(True)
        raise ClientError(f"the broker answered a publisher with {described(self._publisher.read_frame())}")


def ack(tag: int) -> bytes:
    """Return the frame that acknowledges every delivery up to this one."""
    return _ACK_MULTIPLE.pack(_FRAME_METHOD, CHANNEL, _ACK_PAYLOAD, _BASIC, _ACK, tag, 1, _FRAME_END)
