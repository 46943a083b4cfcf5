"""The contract between a connection and the handlers of the general APIs.

A handler is a coroutine function of (node, request, message). The message is the `kio` entity of the
request's own version; the answer is a plain mapping with the field names of the newest version, from
which `wire.kafka.codec` builds the response of the version that was asked for, leaving out what that
version does not know; with `throttle_time`, in milliseconds, nothing more is read of the connection for
as long. Raising `ApiError` answers with its code where the response has one at the top.
Produce and Fetch do not come this way: they are hand-written, in `produce` and `fetch`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.net.node import Node


@dataclass(frozen=True, slots=True)
class Request:
    """What a handler knows of a request besides its message."""

    api_key: int
    version: int
    client_id: str | None
    client_host: str
    user: str = ""
    """Who the client has authenticated as."""


Answer = Mapping[str, Any]
Handler = Callable[["Node", Request, Any], Awaitable[Answer]]
