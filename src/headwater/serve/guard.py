"""Who may ask: no foreign page in a browser, whatever name it has talked the browser into.

A browser sends requests on behalf of any page, and nobody has to authenticate here. Two headers that a page
cannot forge tell where a request comes from.

- `Host`: a name that an attacker's DNS lets point to 127.0.0.1 (DNS rebinding) is not one of ours. An IP
  address is always let through: a page at that address is ours.
- `Origin` and `Sec-Fetch-Site`: a request from another site is refused, but for following a link to the page.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headwater.core.errors import SettingError

__all__ = ["Guard", "check_listen"]

_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


def check_listen(host: str, *, insecure: bool) -> None:
    """Refuse to listen where other machines can ask, unless that was asked for by name."""
    if not insecure and not _is_loopback(host):
        raise SettingError(
            f"{host} can be reached from other machines and nobody has to authenticate: "
            "listen on 127.0.0.1, or add --insecure-listen if that is what you want"
        )


class Guard:
    """ASGI middleware that refuses foreign hosts and cross-site requests."""

    def __init__(self, app: ASGIApp, *, names: Iterable[str] = ()) -> None:
        self._app = app
        self._names = frozenset(name.lower() for name in ("localhost", *names))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand on what is ours, and answer 421 or 403 to the rest."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if not self._is_ours(headers.getlist("host")):
            text = "this host name is not served here: ask by address, or name it with --allow-host"
            await JSONResponse({"error": text}, 421)(scope, receive, send)
            return
        if _is_foreign(headers, scope["path"], scope["method"]):
            await JSONResponse({"error": "requests from other sites are refused"}, 403)(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        await self._app(scope, receive, send_with_headers)

    def _is_ours(self, hosts: list[str]) -> bool:
        if len(hosts) != 1:
            return False
        try:
            host = urlsplit(f"//{hosts[0]}").hostname or ""
        except ValueError:
            return False
        return host in self._names or _is_address(host)


def _is_foreign(headers: Headers, path: str, method: str) -> bool:
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2] != headers["host"]:
        return True
    if headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none"):
        return False
    follows_link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    return not (follows_link and method == "GET" and path == "/")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)
