"""`/views`: rows, single rows and changes."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from headwater.serve.errors import HttpError
from headwater.serve.feed import Feed, entry
from headwater.serve.tokens import read_token, write_token
from headwater.serve.watch import Watch
from headwater.views import Query, Snapshot, ViewStore

__all__ = ["Views"]

MAX_ROWS = 10_000
MAX_WAIT_SECONDS = 30.0
_OURS = ("limit", "after", "order", "token")


class Views:
    """The handlers of `/views`."""

    def __init__(self, store: ViewStore, watch: Watch) -> None:
        self._store = store
        self._watch = watch

    def routes(self) -> list[Route]:
        """Return what is served."""
        return [
            Route("/views", self.index),
            Route("/views/{view}", self.rows),
            Route("/views/{view}/changes", self.changes),
            Route("/views/{view}/{key:path}", self.row),
        ]

    async def index(self, request: Request) -> Response:
        """Answer with every view: its key columns, how many rows it has, and its token."""
        return JSONResponse({"views": await asyncio.to_thread(self._index)})

    async def rows(self, request: Request) -> Response:
        """Answer with rows, and the token from which the feed goes on behind them."""
        view: str = request.path_params["view"]
        query = self._query(view, request)
        found = await asyncio.to_thread(self._store.read, view, query)
        # Pages that follow belong to the state of the first: so does the token.
        token = write_token(self._store, found.token if query.until is None else query.until)
        fields = [
            f'"view":{json.dumps(view)}',
            f'"token":{json.dumps(token)}',
            f'"next":{json.dumps(_next(request, query, found, token))}',
            f'"rows":[{",".join(entry(row.key, row.row) for row in found.rows)}]',
        ]
        return Response(f"{{{','.join(fields)}}}\n", media_type="application/json")

    async def row(self, request: Request) -> Response:
        """Answer with one row."""
        view, key = request.path_params["view"], request.path_params["key"]
        found = await asyncio.to_thread(self._store.row, view, key)
        if found is None:
            raise HttpError(404, f"the view {view} has no row with the key {key}")
        return Response(entry(found.key, found.row) + "\n", media_type="application/json")

    async def changes(self, request: Request) -> Response:
        """Answer with the changes behind a token: once, or for as long as somebody reads."""
        view: str = request.path_params["view"]
        feed = Feed(self._store, self._watch, view)
        since = request.query_params.get("since")
        if "text/event-stream" in request.headers.get("accept", ""):
            last = request.headers.get("last-event-id")
            events = await feed.events(last or since, start_over=last is not None)
            return StreamingResponse(
                events,
                media_type="text/event-stream",
                headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
            )
        if since is None:
            raise HttpError(400, f"say since when, with ?since=TOKEN: GET /views/{view} answers with a token")
        seconds = _number(request, "wait", 0, 0, MAX_WAIT_SECONDS)
        limit = int(_number(request, "limit", 1000, 1, MAX_ROWS))
        found, token = await feed.poll(since, seconds=seconds, limit=limit)
        entries = ",".join(entry(change.key, change.row) for change in found)
        body = f'{{"view":{json.dumps(view)},"token":{json.dumps(token)},"changes":[{entries}]}}\n'
        return Response(body, media_type="application/json", headers={"Cache-Control": "no-store"})

    def _index(self) -> list[dict[str, object]]:
        return [
            {
                "name": view.name,
                "key": view.key,
                "rows": self._store.count(view.name),
                "token": write_token(self._store, self._store.token(view.name)),
            }
            for view in self._store.definitions()
        ]

    def _query(self, view: str, request: Request) -> Query:
        given = request.query_params
        twice = [name for name in given if len(given.getlist(name)) > 1]
        if twice:
            raise HttpError(400, f"{twice[0]} is given more than once")
        for name in given:
            if name not in _OURS and ('"' in name or not all(name.split("."))):
                raise HttpError(400, f"{name!r} is no name of a column")
        order = given.get("order")
        if order is not None and ("after" in given or '"' in order or not all(order.lstrip("-").split("."))):
            raise HttpError(400, "order is the name of a column, and does not go together with after")
        return Query(
            where={name: value for name, value in given.items() if name not in _OURS},
            order=order.removeprefix("-") if order else None,
            descending=bool(order and order.startswith("-")),
            after=given.get("after"),
            until=read_token(self._store, view, given["token"]) if "token" in given else None,
            limit=int(_number(request, "limit", 1000, 1, MAX_ROWS)),
        )


def _next(request: Request, query: Query, found: Snapshot, token: str) -> str | None:
    if query.order is not None or len(found.rows) < query.limit:
        return None
    more = {**request.query_params, "after": found.rows[-1].key, "token": token}
    return f"{request.url.path}?{urlencode(more)}"


def _number(request: Request, name: str, default: float, least: float, most: float) -> float:
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        number = float(text)
    except ValueError:
        number = -1
    if not least <= number <= most:
        raise HttpError(400, f"{name}={text} does not fit: it is a number from {least:g} to {most:g}")
    return number
