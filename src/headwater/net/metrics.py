"""`GET /metrics` and `GET /health` over HTTP/1.1, and nothing else.

One request a connection, of bounded size, answered and closed: a scraper asks every few seconds, and a
web server would be the largest part of the broker.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater.core.exposition import CONTENT_TYPE
from headwater.core.histogram import Histogram
from headwater.net.exposition import exposition

if TYPE_CHECKING:
    from headwater.net.kafka.listener import KafkaListener
    from headwater.net.node import Node

logger = logging.getLogger(__name__)

_MAX_REQUEST = 8 * 1024
_SECONDS = 10.0
_MAX_CONNECTIONS = 64
_LAG_SECONDS = 0.25

_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}

Answer = tuple[int, str, bytes]


class MetricsServer:
    """The port for monitoring."""

    def __init__(self, node: Node, listener: KafkaListener) -> None:
        self._node = node
        self._listener = listener
        self._server: asyncio.Server | None = None
        self._open = 0
        self._lag = Histogram()
        self._lag_check: asyncio.TimerHandle | None = None
        self._pages: dict[str, Callable[[], Answer]] = {"/metrics": self._metrics, "/health": self._health}

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port, which the system chooses when `port` is 0."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=_MAX_REQUEST)
        self._await_lag()
        chosen: int = self._server.sockets[0].getsockname()[1]
        return chosen

    def stop(self) -> None:
        """Stop listening; what is being answered is cut off with the process."""
        if self._lag_check is not None:
            self._lag_check.cancel()
        if self._server is not None:
            self._server.close()

    def _await_lag(self) -> None:
        loop = self._node.loop
        self._lag_check = loop.call_later(_LAG_SECONDS, self._note_lag, loop.time() + _LAG_SECONDS)

    def _note_lag(self, due: float) -> None:
        self._lag.observe(max(self._node.loop.time() - due, 0.0))
        self._await_lag()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= _MAX_CONNECTIONS:
                async with asyncio.timeout(_SECONDS):
                    await self._respond(reader, writer)
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            pass  # whoever asked is gone, or too slow to be told
        finally:
            self._open -= 1
            writer.close()

    async def _respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            answer, method = _text(431, f"A request is at most {_MAX_REQUEST} bytes.\n"), b"GET"
        else:
            method = head.partition(b" ")[0]
            answer = self._answer(head)
        writer.write(_encode(answer, with_body=method != b"HEAD"))
        await writer.drain()

    def _answer(self, head: bytes) -> Answer:
        words = head.partition(b"\r\n")[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _text(400, "This is not an HTTP/1.1 request.\n")
        method, target, _ = words
        page = self._pages.get(target.partition(b"?")[0].decode("latin-1"))
        if page is None:
            return _text(404, "There are /metrics and /health here.\n")
        if method not in (b"GET", b"HEAD"):
            return _text(405, "Only GET and HEAD are served here.\n")
        try:
            return page()
        except Exception:
            logger.exception("gathering %s failed", target.decode("latin-1"))
            return _text(500, "The metrics could not be gathered: the broker's log says why.\n")

    def _metrics(self) -> Answer:
        return 200, CONTENT_TYPE, exposition(self._node, self._listener, self._lag)

    def _health(self) -> Answer:
        failed = [f"{log.topic}-{log.partition}" for log in self._node.logs if log.error is not None]
        broken, full = self._node.failed, self._node.disk.refusal
        status = "failed" if broken is not None else "degraded" if failed or full is not None else "ok"
        body = {"status": status, "reason": broken or full, "failed_partitions": failed[:100]}
        return 503 if broken is not None else 200, "application/json", json.dumps(body).encode() + b"\n"


def _text(status: int, text: str) -> Answer:
    return status, "text/plain; charset=utf-8", text.encode()


def _encode(answer: Answer, *, with_body: bool) -> bytes:
    status, kind, body = answer
    allow = "Allow: GET, HEAD\r\n" if status == 405 else ""
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        f"{allow}X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")
