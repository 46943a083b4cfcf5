"""One POST over HTTP/1.1: sent, the head of the answer read, the connection closed.

A receiver may hang, answer drop by drop or answer without end; the time for all of it is bounded, and
nothing behind the head is read. Redirects are answers like any other: a signed message goes only where the
application says.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ssl
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

import h11

from headwater.core.errors import HeadwaterError, SettingError

__all__ = ["Answer", "WebhookError", "check_url", "post", "sign"]

_MAX_HEAD_BYTES = 64 * 1024


class WebhookError(HeadwaterError):
    """A message that was not answered."""


class Answer(NamedTuple):
    """What a receiver said."""

    status: int
    retry_after: float | None
    location: str | None


def sign(secret: bytes, body: bytes, at: int) -> str:
    """Return the signature header of a body: an HMAC-SHA256 over the time, a dot and the body.

    >>> sign(b"secret", b"{}", 1700000000)[:20]
    't=1700000000,v1=b856'
    """
    digest = hmac.new(secret, f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


def check_url(url: str) -> None:
    """Refuse an address that cannot be sent to."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise SettingError(f"{url} is no address to send alerts to: write https://HOST/PATH")


async def post(url: str, body: bytes, headers: Mapping[str, str], *, seconds: float) -> Answer:
    """Send a body, and return the answer's head, or raise `WebhookError`."""
    try:
        async with asyncio.timeout(seconds):
            return await _exchange(url, body, headers)
    except TimeoutError:
        raise WebhookError(f"no answer within {seconds:g} s") from None
    except (OSError, ssl.SSLError) as error:
        raise WebhookError(f"cannot reach {urlsplit(url).netloc}: {error.strerror or error}") from error
    except h11.ProtocolError as error:
        raise WebhookError(f"the answer is no HTTP: {error}") from error


async def _exchange(url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    reader, writer = await asyncio.open_connection(
        parts.hostname,
        parts.port or (443 if secure else 80),
        ssl=ssl.create_default_context() if secure else None,
    )
    try:
        connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD_BYTES)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        fields = {
            "Host": parts.netloc,
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "Connection": "close",
            **headers,
        }
        request = h11.Request(method="POST", target=target, headers=list(fields.items()))
        for event in (request, h11.Data(data=body), h11.EndOfMessage()):
            writer.write(connection.send(event) or b"")
        await writer.drain()
        return await _head(connection, reader)
    finally:
        writer.close()


async def _head(connection: h11.Connection, reader: asyncio.StreamReader) -> Answer:
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(8192))
        elif isinstance(event, h11.Response):
            fields = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
            after = fields.get("retry-after", "")
            return Answer(
                event.status_code,
                float(after) if after.isascii() and after.isdigit() else None,
                fields.get("location"),
            )
        elif not isinstance(event, h11.InformationalResponse):
            raise WebhookError("the connection was closed without an answer")
