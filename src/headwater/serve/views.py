"""`/views`: rows, single rows, changes and live feeds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from urllib.parse import quote, urlencode

from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from headwater.serve.entries import entry, project
from headwater.serve.errors import HttpError, refusal
from headwater.serve.feed import Batch, Feed, slow_option
from headwater.serve.hub import Hub
from headwater.serve.parameters import count, number, one_of
from headwater.serve.progress import Progress
from headwater.serve.query import MAX_ROWS, cursor, page_query, selection
from headwater.serve.streams import EventStream, events_of, messages_of, send_messages
from headwater.serve.tokens import feed_name, write_token
from headwater.serve.watch import Watch
from headwater.views import OWN, Query, StoredRow, ViewError, ViewStore, iso

__all__ = ["Views"]


class _Anything(PathConvertor):
    """Slashes and ends of lines too, which a key may hold."""

    regex = "(?s:.*)"


register_url_convertor("anything", _Anything())

MAX_WAIT_SECONDS = 30.0
_OF_ONE_ROW = ("at", "history", "limit", "fields", "wait", "timeout")


class Views:
    """The handlers of `/views`."""

    def __init__(self, store: ViewStore, watch: Watch, hub: Hub, progress: Progress) -> None:
        self._store = store
        self._watch = watch
        self._hub = hub
        self._progress = progress

    def routes(self) -> list[BaseRoute]:
        """Return what is served."""
        return [
            Route("/views", self.index),
            Route("/views/{view}", self.rows),
            Route("/views/{view}/changes", self.changes),
            WebSocketRoute("/views/{view}/live", self.live),
            Route("/views/{view}/{key:anything}", self.row),
        ]

    async def index(self, request: Request) -> Response:
        """Answer with every view: its key columns, how many rows it has, and its token."""
        return JSONResponse({"views": await asyncio.to_thread(self._index)})

    async def rows(self, request: Request) -> Response:
        """Answer with rows, and the token from which the feed goes on behind them."""
        view: str = request.path_params["view"]
        chosen = selection(request.query_params)
        query = page_query(self._store, view, request.query_params, chosen)
        await self._wait(request, view)
        found = await asyncio.to_thread(self._store.read, view, query)
        # Pages that follow belong to the state of the first: so does the token.
        position = found.token if query.until is None else query.until
        # What was does not change any more: there is no feed to go on with.
        token = write_token(self._store, view, position) if query.at is None else None
        following = None
        if len(found.rows) == query.limit:
            following = _next(request, cursor(query, found.rows[-1], token))
        body = (
            f'{{"view":{json.dumps(view)},"token":{json.dumps(token)},"next":{json.dumps(following)},'
            f'"rows":[{",".join(_shown(row, chosen.fields) for row in found.rows)}]}}\n'
        )
        return Response(body, media_type="application/json")

    async def row(self, request: Request) -> Response:
        """Answer with one row."""
        view, key = request.path_params["view"], request.path_params["key"]
        given = request.query_params
        if not given:
            return self._answer(view, key, await asyncio.to_thread(self._store.row, view, key), None)
        for name in given:
            one_of(given, name)
            if name not in _OF_ONE_ROW:
                raise HttpError(400, f"{name} is not asked of one row: {', '.join(_OF_ONE_ROW)} are")
        chosen = selection(given)
        query = page_query(self._store, view, given, chosen)
        await self._wait(request, view)
        if "history" in given:
            return await self._history(view, key, count(given, "limit", 100, least=1, most=MAX_ROWS))
        if query.at is None:
            found = await asyncio.to_thread(self._store.row, view, key)
        else:
            found = await asyncio.to_thread(self._row_at, view, key, query.at)
        return self._answer(view, key, found, chosen.fields)

    def _answer(self, view: str, key: str, found: StoredRow | None, fields: Sequence[str] | None) -> Response:
        if found is None:
            raise HttpError(404, f"the view {view} has no row with the key {key}")
        return Response(_shown(found, fields) + "\n", media_type="application/json")

    async def changes(self, request: Request) -> Response:
        """Answer with the changes behind a token: once, or for as long as somebody reads."""
        view, given = request.path_params["view"], request.query_params
        feed = self._feed(request, view)
        since = given.get("since")
        if "text/event-stream" in request.headers.get("accept", ""):
            last = request.headers.get("last-event-id")
            cut = slow_option(given.get("slow"))
            batches = await feed.follow(last or since, start_over=last is not None, cut=cut)
            return EventStream(_events(batches, feed_name(self._store, view)))
        if since is None:
            raise HttpError(400, f"say since when, with ?since=TOKEN: GET /views/{view} answers with a token")
        seconds = number(given, "wait", 0, most=MAX_WAIT_SECONDS)
        limit = count(given, "limit", 1000, least=1, most=MAX_ROWS)
        found, token = await feed.poll(since, seconds=seconds, limit=limit)
        entries = ",".join(entry(change.key, change.row) for change in found)
        body = f'{{"view":{json.dumps(view)},"token":{json.dumps(token)},"changes":[{entries}]}}\n'
        return Response(body, media_type="application/json", headers={"Cache-Control": "no-store"})

    async def live(self, websocket: WebSocket) -> None:
        """Send the rows and then the changes over a WebSocket."""
        view = websocket.path_params["view"]
        try:
            feed = self._feed(websocket, view)
            cut = slow_option(websocket.query_params.get("slow"))
            # Messages say by themselves where they start over: a browser could not tell a refusal from a cut.
            since = websocket.query_params.get("since")
            batches = await feed.follow(since, start_over=True, cut=cut)
        except (HttpError, ViewError) as error:
            await websocket.send_denial_response(refusal(error))
            return
        name = feed_name(self._store, view)
        await send_messages(websocket, batches, lambda batch: messages_of(batch, name))

    def _feed(self, asked: HTTPConnection, view: str) -> Feed:
        chosen = selection(asked.query_params, feed=True)
        return Feed(self._store, self._hub, self._watch, view, chosen)

    async def _wait(self, request: Request, view: str) -> None:
        """Wait until the view has read what `wait` names."""
        text = request.query_params.get("wait")
        if text is not None:
            seconds = number(request.query_params, "timeout", 10, most=MAX_WAIT_SECONDS)
            await self._progress.wait(view, text, seconds)

    async def _history(self, view: str, key: str, limit: int) -> Response:
        """Answer with what a row is and was, newest first."""
        versions = ",".join(
            f'{{"since":{json.dumps(iso(found.since))},'
            f'"until":{json.dumps(found.until and iso(found.until))},"row":{found.row}}}'
            for found in await asyncio.to_thread(self._store.history, view, key, limit)
        )
        body = f'{{"view":{json.dumps(view)},"key":{json.dumps(key)},"versions":[{versions}]}}\n'
        return Response(body, media_type="application/json")

    def _row_at(self, view: str, key: str, at: int) -> StoredRow | None:
        self._store.read(view, Query(at=at, limit=1))  # refuses a moment that the history does not reach
        for found in self._store.history(view, key, MAX_ROWS):
            if found.since <= at and (found.until is None or at < found.until):
                return StoredRow(key, found.row, 0)
        return None

    def _index(self) -> list[dict[str, object]]:
        return [
            {
                "name": view.name,
                "key": view.key,
                "rows": self._store.count(view.name),
                "token": write_token(self._store, view.name, self._store.token(view.name)),
            }
            for view in self._store.definitions()
            if not view.name.startswith(OWN)
        ]


async def _events(batches: AsyncIterator[Batch], feed: str) -> AsyncIterator[bytes]:
    async for batch in batches:
        yield events_of(batch, feed)


def _shown(found: StoredRow, fields: Sequence[str] | None) -> str:
    return entry(found.key, found.row if fields is None else project(found.row, fields))


def _next(request: Request, place: str) -> str:
    """Return the address of the page behind the one that ends at a place."""
    left_out = ("after", "token", "cursor", "wait", "timeout")
    more = {name: value for name, value in request.query_params.items() if name not in left_out}
    return f"{quote(request.url.path)}?{urlencode({**more, 'cursor': place})}"
