"""One POST over HTTP/1.1: sent, the head of the answer read, the connection closed.

A receiver may hang, answer drop by drop or answer without end; the time for all of it is bounded, and
nothing behind the head is read. Redirects are answers like any other: a signed message goes only where the
application says, and only to an address that was checked.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

import h11

from headwater.core.errors import HeadwaterError, SettingError
from headwater.serve.addresses import PrivateAddress, Resolver, addresses_of, is_public, resolve

__all__ = ["Answer", "WebhookError", "check_url", "post", "retry_after"]

_MAX_HEAD_BYTES = 64 * 1024
_MAX_ADDRESSES = 4


class WebhookError(HeadwaterError):
    """A message that was not answered."""


class Answer(NamedTuple):
    """What a receiver said."""

    status: int
    retry_after: float | None
    location: str | None


def check_url(url: str, *, allow_private: bool = False) -> None:
    """Refuse an address that cannot be sent to; one that is a name is checked when it is connected to."""
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise SettingError("an address to send alerts to has no user and password: sign with secret_env")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingError(f"{url} is no address to send alerts to: write https://HOST/PATH")
    is_name = not parts.hostname.replace(".", "").isdigit() and ":" not in parts.hostname
    private = parts.hostname == "localhost" if is_name else not is_public(parts.hostname)
    if private and not allow_private:
        raise SettingError(
            f"{url} is no public address: start with --allow-private-webhooks to send alerts there"
        )


async def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    seconds: float,
    allow_private: bool = False,
    resolver: Resolver = resolve,
) -> Answer:
    """Send a body, and return the answer's head, or raise `WebhookError`."""
    parts = urlsplit(url)
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await _connect(parts, allow_private, resolver)
            try:
                return await _exchange(parts, body, headers, reader, writer)
            finally:
                # Not close: that would wait for a receiver that does not say goodbye.
                writer.transport.abort()
    except TimeoutError:
        raise WebhookError(f"no answer within {seconds:g} s") from None
    except PrivateAddress as error:
        raise WebhookError(str(error)) from None
    except (OSError, ssl.SSLError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise WebhookError(f"cannot reach {parts.netloc}: {reason}") from error
    except h11.ProtocolError as error:
        raise WebhookError(f"the answer is no HTTP: {error}") from error


async def _connect(
    parts: SplitResult, allow_private: bool, resolver: Resolver
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to an address of the host that was checked, under the name of the host."""
    host, secure = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    found = await addresses_of(host, port, allow_private=allow_private, resolver=resolver)
    error: OSError = OSError(f"{host} has no address")
    for address in found[:_MAX_ADDRESSES]:
        try:
            return await asyncio.open_connection(
                address, port, ssl=_tls() if secure else None, server_hostname=host if secure else None
            )
        except ssl.SSLError:
            raise
        except OSError as failed:
            error = failed
    raise error


async def _exchange(
    parts: SplitResult,
    body: bytes,
    headers: Mapping[str, str],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> Answer:
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD_BYTES)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    fields = {
        "Host": _authority(parts),
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


def _authority(parts: SplitResult) -> str:
    """Return host and port as a header has them: a name in letters of another script as DNS knows it.

    >>> _authority(urlsplit("https://bücher.example:8443/new"))
    'xn--bcher-kva.example:8443'
    """
    if parts.netloc.isascii():
        return parts.netloc
    host = (parts.hostname or "").encode("idna").decode()
    return host if parts.port is None else f"{host}:{parts.port}"


async def _head(connection: h11.Connection, reader: asyncio.StreamReader) -> Answer:
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(8192))
        elif isinstance(event, h11.Response):
            fields = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
            after = retry_after(fields.get("retry-after", ""), time.time())
            return Answer(event.status_code, after, fields.get("location"))
        elif not isinstance(event, h11.InformationalResponse):
            raise WebhookError("the connection was closed without an answer")


def retry_after(text: str, now: float) -> float | None:
    """Return how many seconds to wait: the header holds them, or a date.

    >>> retry_after("120", 0), retry_after("Thu, 01 Jan 1970 00:01:00 GMT", 50.0), retry_after("soon", 0)
    (120.0, 10.0, None)
    """
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        return max(parsedate_to_datetime(text).timestamp() - now, 0.0)
    except (ValueError, OverflowError):
        return None


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()
