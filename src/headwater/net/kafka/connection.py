"""One Kafka client's connection: bytes in, requests handed out in order, responses back in that order.

All connections receive into one shared buffer, so an idle one holds no buffer of its own; a request that
does not arrive whole is gathered in a buffer of its size. Produce requests are parsed and appended
straight from the buffer they arrived in.

Order: responses leave in the order of the requests (the protocol guide, "Network"). Produce requests
of one connection are pipelined, so that one sync serves several; every other request waits until those before
it are answered, as in Kafka. While a request waits, or the client does not read its responses,
nothing more is read from the connection, which bounds what it can make us hold.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from headwater.net.kafka.api import Request
from headwater.net.kafka.fetch import Fetch
from headwater.net.kafka.produce import produce
from headwater.wire.kafka.codec import decode_request
from headwater.wire.kafka.errors import WireError
from headwater.wire.kafka.fetch import parse_fetch
from headwater.wire.kafka.frames import RequestHeader, next_frame, parse_header
from headwater.wire.kafka.versions import Api

if TYPE_CHECKING:
    from headwater.net.kafka.listener import KafkaListener

logger = logging.getLogger(__name__)

RECEIVE_SIZE = 256 * 1024
_MAX_PIPELINED = 64
_WRITE_HIGH = 1024 * 1024
_PRODUCE = int(Api.PRODUCE)
_FETCH = int(Api.FETCH)


class Slot:
    """The place of one response in a connection's order."""

    __slots__ = ("pieces",)

    def __init__(self) -> None:
        self.pieces: list[Any] | None = None


class KafkaConnection(asyncio.BufferedProtocol):
    """The asyncio side of one connection."""

    __slots__ = (
        "_backlog",
        "_exclusive",
        "_gathered",
        "_gathering",
        "_listener",
        "_paused",
        "_slots",
        "_stuck",
        "_transport",
        "active_ms",
        "fetch",
        "node",
        "peer",
    )

    def __init__(self, listener: KafkaListener) -> None:
        self._listener = listener
        self.node = listener.node
        self.peer = ""
        self.active_ms = 0
        self.fetch: Fetch | None = None
        self._transport: asyncio.Transport | None = None
        self._gathering: bytearray | None = None
        self._gathered = 0
        self._slots: deque[Slot] = deque()
        self._exclusive = False
        self._backlog: deque[bytearray] = deque()
        self._paused = False
        self._stuck = False

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
        if self.fetch is not None:
            self.fetch.abandon()
            self.fetch = None
        self._listener.closed(self)

    def pause_writing(self) -> None:
        """Stop taking requests while the client does not read."""
        self._stuck = True

    def resume_writing(self) -> None:
        """Take requests again."""
        self._stuck = False
        self._next()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes go: a request that is being gathered, or the shared buffer."""
        if self._gathering is not None:
            return memoryview(self._gathering)[self._gathered :]
        return self._listener.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take the requests that are whole now."""
        self.active_ms = self.node.clock.monotonic_ms()
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
            logger.warning("closed the connection from %s: %s", self.peer, reason)
        if self._transport is not None:
            self._transport.close()

    # -- requests --------------------------------------------------------------------------------

    def _split(self, buffer: memoryview, end: int) -> None:
        limit = self._listener.max_request
        position = 0
        while (frame := next_frame(buffer, position, end, limit)) is not None:
            self._take(buffer, *frame)
            position = frame[1]
            if self._transport is None or self._transport.is_closing():
                return
        if position < end:
            rest = end - position
            size = 4 + int.from_bytes(buffer[position : position + 4], "big") if rest >= 4 else 4
            self._gathering = bytearray(size)
            self._gathering[:rest] = buffer[position:end]
            self._gathered = rest

    def _gather(self, count: int) -> None:
        frame = self._gathering
        assert frame is not None
        self._gathered += count
        if self._gathered < len(frame):
            return
        bounds = next_frame(frame, 0, len(frame), self._listener.max_request)
        if bounds is None:  # only the size was there so far
            self._gathering = bytearray(4 + int.from_bytes(frame, "big"))
            self._gathering[:4] = frame
            return
        self._gathering = None
        self._take(memoryview(frame), *bounds)

    def _take(self, buffer: memoryview, start: int, end: int) -> None:
        if self._backlog or self._exclusive or self._stuck or len(self._slots) >= _MAX_PIPELINED:
            self._hold(buffer, start, end)
            return
        header = parse_header(buffer, start, end)
        if header.api_key == _PRODUCE:
            produce(self, header, buffer, end)
        elif self._slots:
            self._hold(buffer, start, end)
        elif header.api_key == _FETCH:
            self._exclusive = True
            request = parse_fetch(buffer, header.payload, end, header.version)
            self.fetch = Fetch(self, self.slot(), header, request)
            self.fetch.start()
        else:
            self._call(header, buffer, end)

    def _hold(self, buffer: memoryview, start: int, end: int) -> None:
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
        if self._paused and not self._backlog and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    def _call(self, header: RequestHeader, buffer: memoryview, end: int) -> None:
        self._exclusive = True
        slot = self.slot()
        request = Request(header.api_key, header.version, header.client_id, self.peer)
        message: Any = None
        if header.api_key != Api.API_VERSIONS or self._listener.serves_version(header):
            message = decode_request(header.api_key, header.version, buffer, header.payload, end)
        self._listener.spawn(self, slot, header, request, message)

    # -- responses -------------------------------------------------------------------------------

    def slot(self) -> Slot:
        """Reserve the next place among the responses."""
        slot = Slot()
        self._slots.append(slot)
        return slot

    def reply(self, slot: Slot, pieces: list[Any]) -> None:
        """Give the response for `slot`; it leaves when those before it have left."""
        slot.pieces = pieces
        slots = self._slots
        if not slots or slots[0] is not slot or self._transport is None:
            return
        ready: list[Any] = []
        while slots and slots[0].pieces is not None:
            ready += slots.popleft().pieces  # type: ignore[arg-type]
        if len(ready) == 1:
            self._transport.write(ready[0])
        else:
            self._transport.writelines(ready)
        if not slots:
            self._exclusive = False
            self.fetch = None
        if self._backlog:
            self._next()
