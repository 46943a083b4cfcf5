"""Who may ask: those with a token, and no foreign page in a browser, whatever name it has talked the browser into.

A browser sends requests on behalf of any page, with the cookies of ours. Two headers that a page cannot forge tell
where a request comes from; they are looked at for WebSockets as well.

- `Host`: a name that an attacker's DNS lets point to 127.0.0.1 (DNS rebinding) is not one of ours. An IP
  address is always let through: a page at that address is ours.
- `Origin` and `Sec-Fetch-Site`: a request from another site is refused, but for following a link to the page.

A token comes in `Authorization: Bearer …`; or in a cookie, which `POST /session` gives to a browser that has shown
one, since a page can set no header of an event stream or a WebSocket.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headwater.core.errors import SettingError
from headwater.serve.access import Access, Admission, role_for

__all__ = ["ADMISSION", "COOKIE", "Guard", "bearer", "check_listen"]

COOKIE = "headwater"
ADMISSION = "headwater.admission"
"""Where a scope has what let the request in; nothing where everybody is."""
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


def check_listen(host: str, *, insecure: bool, tokens: bool = False) -> None:
    """Refuse to listen where other machines can ask, unless they need tokens, or it was asked for by name."""
    if not insecure and not tokens and not _is_loopback(host):
        raise SettingError(
            f"{host} can be reached from other machines and nobody has to authenticate: make tokens with "
            "`headwater tokens add NAME`, listen on 127.0.0.1, or add --insecure-listen if that is what you want"
        )


class Guard:
    """ASGI middleware that refuses foreign hosts, cross-site requests, and those without a fitting token."""

    def __init__(self, app: ASGIApp, *, names: Iterable[str] = (), access: Access | None = None) -> None:
        self._app = app
        self._names = frozenset(name.lower() for name in ("localhost", *names))
        self._access = access or Access()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand on what is ours, and answer 421, 403 or 401 to the rest."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        refused = self._refusal(scope)
        await (refused or self._app)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        method = scope.get("method", "GET")
        if not self._is_ours(headers.getlist("host")):
            text = "this host name is not served here: ask by address, or name it with --allow-host"
            return JSONResponse({"error": text}, 421)
        if _is_foreign(headers, scope["path"], method, is_websocket=scope["type"] == "websocket"):
            return JSONResponse({"error": "requests from other sites are refused"}, 403)
        role = role_for(method, scope["path"])
        if role is None or not self._access.required:
            return None
        token = bearer(HTTPConnection(scope))
        holder = self._access.holder(token) if token else None
        if holder is None:
            what = "this token is not known" if token else "a token is needed"
            text = f"{what}: send Authorization: Bearer TOKEN, with one that `headwater tokens add` made"
            return JSONResponse({"error": text}, 401, {"WWW-Authenticate": "Bearer"})
        if role not in holder.roles:
            text = f"the token {holder.name} has not the role {role}, which this needs"
            return JSONResponse({"error": text}, 403)
        assert token is not None
        scope[ADMISSION] = Admission(self._access, token, role)
        return None

    def _is_ours(self, hosts: list[str]) -> bool:
        if len(hosts) != 1:
            return False
        host = _name(hosts[0])
        return host in self._names or _is_address(host)


def bearer(asked: HTTPConnection) -> str | None:
    """Return the token that a request brings, in its header or its cookie."""
    kind, _, token = asked.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and token.strip():
        return token.strip()
    return asked.cookies.get(COOKIE)


def _is_foreign(headers: Headers, path: str, method: str, *, is_websocket: bool) -> bool:
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2] != headers["host"]:
        return True
    if headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none"):
        return False
    follows_link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    return is_websocket or not (follows_link and method == "GET" and path == "/")


@lru_cache(maxsize=1024)
def _name(host: str) -> str:
    """Return the name in a Host header; nothing where there is none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


@lru_cache(maxsize=1024)
def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)
