"""One Kafka client's connection: bytes in, requests handed out in order, responses back in that order.

All connections receive into one shared buffer, so an idle one holds no buffer of its own; a request that
does not arrive whole is gathered in a buffer of its size. Produce requests are parsed and appended
straight from the buffer they arrived in.

Order: responses leave in the order of the requests (the protocol guide, "Network"). Produce requests
of one connection are pipelined, so that one sync serves several; every other request waits until those before
it are answered, as in Kafka. While a request waits, or the client does not read its responses, or is
throttled, nothing more is read from the connection, which bounds what it can make us hold.

Until a client has authenticated, where it has to, the connection counts as taken by one request, and
what comes is handed to its `Authentication`, so that the path of those who have is not longer for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from headwater.net.kafka.api import Request
from headwater.net.kafka.authentication import Authentication
from headwater.net.kafka.fetch import Fetch
from headwater.net.kafka.memory import UNCOUNTED
from headwater.net.kafka.produce import produce
from headwater.net.kafka.share_fetch import ShareFetch
from headwater.net.tls import distinguished_name
from headwater.wire.kafka.codec import decode_request
from headwater.wire.kafka.errors import WireError
from headwater.wire.kafka.fetch import parse_fetch
from headwater.wire.kafka.frames import RequestHeader, next_frame, parse_header
from headwater.wire.kafka.versions import Api, is_served

if TYPE_CHECKING:
    from headwater.net.kafka.listener import KafkaListener

logger = logging.getLogger(__name__)

RECEIVE_SIZE = 256 * 1024
_WHOLE = 1024 * 1024
_MAX_PIPELINED = 64
_WRITE_HIGH = 64 * 1024
# Why no more requests are taken for now.
_UNREAD, _MUTED, _NO_MEMORY = 1, 2, 4
_PRODUCE = int(Api.PRODUCE)
_FETCH = int(Api.FETCH)
_SHARE_FETCH = int(Api.SHARE_FETCH)


ANONYMOUS = "ANONYMOUS"
"""Whoever has not authenticated, under Kafka's name for them."""


class Slot:
    """The place of one response in a connection's order."""

    __slots__ = ("pieces",)

    def __init__(self) -> None:
        self.pieces: list[Any] | None = None


class KafkaConnection(asyncio.BufferedProtocol):
    """The asyncio side of one connection."""

    __slots__ = (
        "_backlog",
        "_bulk",
        "_counted",
        "_exclusive",
        "_gate",
        "_gathered",
        "_gathering",
        "_listener",
        "_max_request",
        "_paused",
        "_slots",
        "_stuck",
        "_transport",
        "_unmute",
        "active_ms",
        "client_id",
        "fetch",
        "node",
        "peer",
        "shares",
        "user",
    )

    def __init__(self, listener: KafkaListener) -> None:
        self._listener = listener
        self.node = listener.node
        self.peer = ""
        self.client_id: str | None = None
        self.user = ANONYMOUS
        self.active_ms = 0
        self.fetch: Fetch | ShareFetch | None = None
        self.shares = False
        self._transport: asyncio.Transport | None = None
        self._gathering: bytearray | None = None
        self._gathered = 0
        self._slots: deque[Slot] = deque()
        self._gate = Authentication(self, listener) if listener.access.sasl else None
        self._exclusive = self._gate is not None
        self._max_request = listener.max_request if self._gate is None else listener.max_before
        self._backlog: deque[bytearray] = deque()
        self._paused = False
        self._stuck = 0
        self._counted = False
        self._bulk = 0
        self._unmute: asyncio.TimerHandle | None = None

    # -- the transport's side --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport, or refuse it where there are too many connections."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH)
        name = transport.get_extra_info("peername")
        self.peer = name[0] if name else "unknown"
        self.active_ms = self.node.clock.monotonic_ms()
        self._listener.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of everything; requests under way end by themselves and their answers are dropped."""
        self._transport = None
        self._backlog.clear()
        self._slots.clear()
        self._gathering = None
        self._give_back()
        self._listener.response_memory.release(self)
        if self._unmute is not None:
            self._unmute.cancel()
        if self.fetch is not None:
            self.fetch.abandon()
            self.fetch = None
        if self.shares:
            self.node.share_service.disconnected(self)
        self._listener.closed(self)

    def pause_writing(self) -> None:
        """Stop taking requests while the client does not read."""
        self._stuck |= _UNREAD
        if self._transport is not None:
            size = max(self._bulk, self._transport.get_write_buffer_size())
            self._listener.response_memory.hold(self, size)

    def _expect(self, size: int) -> None:
        # A large response is held as a whole until its last byte is sent, so that byte is what matters.
        if not self._bulk and self._transport is not None:
            self._transport.set_write_buffer_limits(high=0)
        self._bulk = size

    def resume_writing(self) -> None:
        """Take requests again."""
        self._listener.response_memory.release(self)
        self._go(_UNREAD)

    def mute(self, milliseconds: int) -> None:
        """Take no requests for a time, whether or not the client obeys its throttling."""
        if self._transport is not None:
            self._stop(_MUTED)
            self._unmute = self.node.loop.call_later(milliseconds / 1000, self._go, _MUTED)

    def room(self) -> int:
        """Return how large a response may be."""
        return self._listener.response_memory.room()

    def _stop(self, reason: int) -> None:
        self._stuck |= reason
        if not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def _go(self, reason: int) -> None:
        self._stuck &= ~reason
        self._next()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes go: a request that is being gathered, or the shared buffer."""
        if self._gathering is not None:
            return memoryview(self._gathering)[self._gathered :]
        return self._listener.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take the requests that are whole now."""
        self.active_ms = self.node.clock.monotonic_ms()
        self.node.counters.bytes_in += nbytes
        try:
            if self._gathering is None:
                self._split(self._listener.buffer, nbytes)
            else:
                self._gather(nbytes)
        except WireError as error:
            self.close(str(error))

    def eof_received(self) -> bool:
        """Close when the client does."""
        return False

    def close(self, reason: str | None = None) -> None:
        """Close the connection, and say why where it is not the client's own wish."""
        if reason is not None:
            self.node.counters.connections_refused += 1
            self.node.log_limit.log(
                logger, logging.WARNING, self.peer,
                "closed the connection from %s: %s", self.peer, reason,
                client_id=self.client_id, reason=reason,
            )  # fmt: skip
        if self._transport is not None:
            self._transport.close()

    def abort(self, reason: str) -> None:
        """Close the connection without sending what its client does not read."""
        self.close(reason)
        if self._transport is not None:
            self._transport.abort()

    # -- requests --------------------------------------------------------------------------------

    def _split(self, buffer: memoryview, end: int) -> None:
        position = 0
        while (frame := next_frame(buffer, position, end, self._max_request)) is not None:
            self._take(buffer, *frame)
            position = frame[1]
            if self._transport is None or self._transport.is_closing():
                return
        if position < end:
            self._begin(buffer[position:end])

    def _begin(self, first: memoryview) -> None:
        """Gather a request of which the first bytes are here, once there is memory for it."""
        size = 4 + int.from_bytes(first[:4], "big") if len(first) >= 4 else 4
        self._gathered = len(first)
        if size > UNCOUNTED:
            self._counted = True
            if not self._listener.request_memory.take(self, size):
                self._gathering = bytearray(first)
                self._stop(_NO_MEMORY)
                return
        self._grow(first, size)

    def _grow(self, first: bytearray | memoryview, size: int) -> None:
        # A client that announces much and sends little makes us hold little.
        buffer = bytearray(min(size, max(_WHOLE, 4 * len(first))))
        buffer[: len(first)] = first
        self._gathering = buffer

    def granted(self) -> None:
        """Gather the request that there was no memory for."""
        first = self._gathering
        if first is not None and self._stuck & _NO_MEMORY:
            self._grow(first, 4 + int.from_bytes(first[:4], "big"))
            self._go(_NO_MEMORY)

    def _give_back(self) -> None:
        if self._counted:
            self._counted = False
            self._listener.request_memory.give_back(self)

    def _gather(self, count: int) -> None:
        frame = self._gathering
        assert frame is not None
        self._gathered += count
        if self._gathered < len(frame):
            return
        bounds = next_frame(frame, 0, len(frame), self._max_request)
        if bounds is None:
            if len(frame) == 4:  # only the size was there so far
                self._begin(memoryview(frame))
            else:
                self._grow(frame, 4 + int.from_bytes(frame[:4], "big"))
            return
        self._gathering = None
        self._take(memoryview(frame), *bounds)
        if not self._backlog:
            self._give_back()

    def _take(self, buffer: memoryview, start: int, end: int) -> None:
        if self._backlog or self._exclusive or self._stuck or len(self._slots) >= _MAX_PIPELINED:
            self._hold(buffer, start, end)
            return
        header = parse_header(buffer, start, end)
        if header.api_key != _PRODUCE and self._slots:
            self._hold(buffer, start, end)
            return
        self.client_id = header.client_id
        self.node.counters.requests[header.api_key] += 1
        if header.api_key == _PRODUCE:
            produce(self, header, buffer, end)
        elif header.api_key == _FETCH:
            self._exclusive = True
            request = parse_fetch(buffer, header.payload, end, header.version)
            self.fetch = Fetch(self, self.slot(), header, request)
            self.fetch.start()
        elif header.api_key == _SHARE_FETCH:
            self._exclusive = True
            message = decode_request(header.api_key, header.version, buffer, header.payload, end)
            self.fetch = ShareFetch(self, self.slot(), header, message)
            self._listener.run_task(self.fetch.run())
        else:
            self._call(header, buffer, end)

    def _hold(self, buffer: memoryview, start: int, end: int) -> None:
        if self._gate is not None:
            self._gate.take(bytes(buffer[start:end]))
            return
        self._backlog.append(bytearray(buffer[start:end]))
        if not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def _next(self) -> None:
        """Take requests that were held, as far as order allows, and read on when none is left."""
        if self._transport is None or self._transport.is_closing():
            return
        try:
            held, self._backlog = self._backlog, deque()
            while held:
                if self._exclusive or self._stuck or self._backlog:
                    break
                frame = held.popleft()
                self._take(memoryview(frame), 0, len(frame))
            self._backlog.extend(held)
        except WireError as error:
            self.close(str(error))
            return
        if not self._backlog and self._gathering is None:
            self._give_back()
        if self._paused and not self._backlog and not self._stuck and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    def _call(self, header: RequestHeader, buffer: memoryview, end: int) -> None:
        self._exclusive = True
        slot = self.slot()
        request = Request(header.api_key, header.version, header.client_id, self.peer, self.user)
        message: Any = None
        if header.api_key != Api.API_VERSIONS or is_served(header.api_key, header.version):
            message = decode_request(header.api_key, header.version, buffer, header.payload, end)
        self._listener.spawn(self, slot, header, request, message)

    # -- authentication --------------------------------------------------------------------------

    def certificate_name(self) -> str:
        """Return the name in the certificate that the client has shown."""
        shown = None if self._transport is None else self._transport.get_extra_info("peercert")
        return distinguished_name(shown) if shown else self.user

    def write(self, response: bytes) -> None:
        """Send a response of the authentication, which is the only one under way."""
        if self._transport is not None:
            self.node.counters.bytes_out += len(response)
            self._transport.write(response)

    def admit(self, held: list[bytes]) -> None:
        """Serve the client from here on, and first what it sent while its password was checked."""
        self._gate = None
        self._exclusive = False
        self._max_request = self._listener.max_request
        self._listener.admitted(self)
        self._backlog.extend(bytearray(frame) for frame in held)
        self._next()

    def pause(self) -> None:
        """Read nothing more until the client is admitted."""
        if self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def dismiss(self, reason: str, response: bytes | None, seconds: float) -> None:
        """Close the connection of a client that failed to authenticate, after a while that slows guessing."""
        if self._transport is not None:
            # Reading starts only after `connection_made`, and what came by then is held.
            self._exclusive = True
            self._transport.pause_reading()
            self.node.loop.call_later(seconds, self._dismiss, reason, response)

    def _dismiss(self, reason: str, response: bytes | None) -> None:
        if response is not None:
            self.write(response)
        self.close(reason)

    # -- responses -------------------------------------------------------------------------------

    def slot(self) -> Slot:
        """Reserve the next place among the responses."""
        slot = Slot()
        self._slots.append(slot)
        return slot

    def reply(self, slot: Slot, pieces: list[Any]) -> None:
        """Give the response for `slot`; it leaves when those before it have left."""
        slot.pieces = pieces
        if self._slots and self._slots[0] is slot:
            self.send_replies()

    def send_replies(self) -> None:
        """Send the responses that are there, up to the first that is not, with one write."""
        slots = self._slots
        if not slots or slots[0].pieces is None or self._transport is None:
            return
        ready: list[Any] = []
        while slots and slots[0].pieces is not None:
            ready += slots.popleft().pieces  # type: ignore[arg-type]
        if len(ready) == 1:
            self.node.counters.bytes_out += len(ready[0])
            self._transport.write(ready[0])
        else:
            size = sum(map(len, ready))
            self.node.counters.bytes_out += size
            if size > _WRITE_HIGH:
                self._expect(size)
            self._transport.writelines(ready)
        if not slots:
            self._exclusive = False
            self.fetch = None
        if self._backlog:
            self._next()
