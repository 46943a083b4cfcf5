"""Live feeds on the wire: server-sent events and WebSocket messages.

    event: start      forget what you have                              (no id)
    event: row        {"key": …, "row": {…}}                            (no id)
    event: ready      the rows are complete                             id: token
    event: change     {"key": …, "row": {…}}, row is null when deleted  id: token
    event: cut        {"error": …}: the reader was too slow, and asked to be cut off

A WebSocket message is the same as one JSON object: {"event": …, "token": …, "key": …, "row": …}. In quiet times an
event stream gets an id alone, and a WebSocket {"event": "alive", "token": …}: the place to go on from.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from headwater.serve.access import Admission
from headwater.serve.entries import entry
from headwater.serve.feed import Batch, Kind, until_failure
from headwater.serve.guard import ADMISSION

__all__ = ["EventStream", "events_of", "messages_of", "send_messages"]

_SEND_SECONDS = 60.0
"""A reader that takes nothing for so long is gone."""
_CUT = "you were too slow, and asked to be cut off: go on from the last token"


def events_of(batch: Batch, feed: str) -> bytes:
    """Return a batch as server-sent events."""
    token = f"{feed}-{batch.position}"
    match batch.kind:
        case Kind.START:
            return b"event: start\ndata: {}\n\n"
        case Kind.ROW:
            rows = (f"event: row\ndata: {entry(each.key, each.row)}\n\n" for each in batch.entries)
            return "".join(rows).encode()
        case Kind.READY:
            return f"id: {token}\nevent: ready\ndata: {{}}\n\n".encode()
        case Kind.CHANGE:
            return b"".join([each.event(feed) for each in batch.entries])
        case Kind.ALIVE:
            return f"id: {token}\n\n".encode()
        case Kind.CUT:
            return f'event: cut\ndata: {{"error":"{_CUT}"}}\n\n'.encode()


def messages_of(batch: Batch, feed: str) -> list[str]:
    """Return a batch as WebSocket messages."""
    token = f"{feed}-{batch.position}"
    match batch.kind:
        case Kind.START:
            return ['{"event":"start"}']
        case Kind.ROW:
            return [f'{{"event":"row",{entry(each.key, each.row)[1:]}' for each in batch.entries]
        case Kind.CHANGE:
            return [each.message(feed) for each in batch.entries]
        case Kind.CUT:
            return [f'{{"event":"cut","error":"{_CUT}"}}']
        case _:
            return [f'{{"event":"{batch.kind.value}","token":"{token}"}}']


class EventStream(Response):
    """An answer that goes on for as long as somebody reads it."""

    media_type = "text/event-stream"

    def __init__(self, parts: AsyncIterator[bytes]) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the parts until they end, or the reader has gone."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        if scope["method"] == "HEAD":  # whoever asks so reads no body, and waits for the next answer
            await send({"type": "http.response.body", "body": b""})
            return
        async with _ended_by(_disconnected(receive), scope.get(ADMISSION)):
            async for part in until_failure(self._parts):
                async with asyncio.timeout(_SEND_SECONDS):
                    await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def send_messages(
    websocket: WebSocket, batches: AsyncIterator[Batch], messages: Callable[[Batch], list[str]]
) -> None:
    """Send batches over a WebSocket until they end, or the reader has gone; what it says is not listened to."""
    await websocket.accept()
    admission = websocket.scope.get(ADMISSION)
    async with _ended_by(_closed(websocket), admission):
        code = 1001  # the server goes away
        async for batch in until_failure(batches):
            for text in messages(batch):
                async with asyncio.timeout(_SEND_SECONDS):
                    await websocket.send_text(text)
            if batch.kind is Kind.CUT:
                code = 1008
        with contextlib.suppress(RuntimeError):
            await websocket.close(code)
    if admission is not None and not admission.holds:
        with contextlib.suppress(RuntimeError):
            await websocket.close(1008, "the token is not known any more")


@contextlib.asynccontextmanager
async def _ended_by(gone: Coroutine[Any, Any, None], admission: Admission | None) -> AsyncIterator[None]:
    """End what is inside once a reader has gone, takes nothing any more, or is not let in any more."""
    listening = asyncio.create_task(gone)
    try:
        async with asyncio.timeout(None) as limit:

            def end(_: asyncio.Task[None]) -> None:
                limit.reschedule(0)

            def end_unless_let_in() -> None:
                if admission is not None and not admission.holds:
                    limit.reschedule(0)

            listening.add_done_callback(end)
            if admission is not None:
                admission.access.told.add(end_unless_let_in)
            try:
                yield
            finally:
                listening.remove_done_callback(end)
                if admission is not None:
                    admission.access.told.discard(end_unless_let_in)
    except (TimeoutError, WebSocketDisconnect):
        pass
    finally:
        listening.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _closed(websocket: WebSocket) -> None:
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass
