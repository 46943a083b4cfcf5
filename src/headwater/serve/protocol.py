"""HTTP as uvicorn reads it, with heads of requests that are bounded in size and in time.

Nobody has shown a token before the head of a request is there, so that whoever can connect could otherwise fill the
memory with a header that never ends, or hold every connection there may be by never finishing one.
"""

from __future__ import annotations

import asyncio
import json

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

__all__ = ["BoundedHttp"]

HEAD_BYTES = 128 * 1024
HEAD_SECONDS = 30.0


class BoundedHttp(HttpToolsProtocol):
    """One connection."""

    _timer: asyncio.TimerHandle | None = None
    _taken = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._end_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take in what came, and hang up if it makes the head of a request too large."""
        if self._timer is None and (self.cycle is None or self.cycle.response_complete):
            self._await_head()  # also for what begins no request yet, like empty lines
        before = self._taken = self._taken + len(data)
        super().data_received(data)
        if self._taken < before:  # a request began in what came: from here on the rest of its head is counted
            self._taken = 1
        if self._timer is not None and self._taken > HEAD_BYTES:
            self._refuse(
                b"431 Request Header Fields Too Large",
                f"the head of a request has at most {HEAD_BYTES} bytes",
            )

    def on_message_begin(self) -> None:
        """Begin to count."""
        self._taken = 0
        if self._timer is None:
            self._await_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Hand the request on."""
        self._end_head()
        super().on_headers_complete()

    def _await_head(self) -> None:
        self._taken = 0
        self._timer = self.loop.call_later(HEAD_SECONDS, self._too_slow)

    def _end_head(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        if self._taken:
            self._refuse(
                b"408 Request Timeout", f"the head of a request did not come within {HEAD_SECONDS:g} s"
            )
        else:
            self.transport.close()

    def _refuse(self, status: bytes, text: str) -> None:
        self._end_head()
        if self.transport.is_closing():
            return
        body = json.dumps({"error": text}).encode()
        self.transport.write(
            b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
            % (status, len(body), body)
        )
        self.transport.close()
