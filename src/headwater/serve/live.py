"""`/live`: the one event stream that the page lives on.

It is made for looking, not for following: a view that changes faster than a screen can show sends its newest
changes only, and a view with many rows starts with those that changed last. `/views/NAME/changes` is
the feed that misses nothing.

    event: state      what moves each second: health, topics with rates, pipelines, views, alerts
    event: rows       {"view": …, "rows": [{"key": …, "row": …}, …]}
    event: changes    the same; a row is null when it was deleted
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headwater.serve.alert_routes import counts
from headwater.serve.entries import entry
from headwater.serve.monitoring import Monitoring
from headwater.serve.pipelines import lag, pipelines
from headwater.serve.streams import EventStream
from headwater.views import OWN, Query, StoredChange, StoredRow

if TYPE_CHECKING:
    from headwater.serve.broker import TopicRate
    from headwater.serve.site import Site

__all__ = ["Live", "in_order"]

_ROWS = 500
_TICK_SECONDS = 0.25
_TICKS_A_STATE = 4


class Live:
    """The handler of `/live`."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._monitoring = Monitoring(site)

    def routes(self) -> list[Route]:
        """Return what is served."""
        return [Route("/live", self.stream)]

    async def stream(self, request: Request) -> Response:
        """Answer with events for as long as somebody looks."""
        return EventStream(_encoded(self._events()))

    async def _events(self) -> AsyncIterator[str]:
        shown: dict[str, int] = {}
        tick = 0
        while not self._site.watch.closed:
            if tick % _TICKS_A_STATE == 0:
                state = await asyncio.to_thread(self._state)
                yield f"event: state\ndata: {json.dumps(state, separators=(',', ':'))}\n\n"
            for view, token in (await asyncio.to_thread(self._site.store.tokens)).items():
                if shown.get(view) != token and not view.startswith(OWN):
                    kind = "changes" if view in shown else "rows"
                    found = await asyncio.to_thread(self._newest, view, shown.get(view), token)
                    yield f"event: {kind}\ndata: {_rows(view, found)}\n\n"
                    shown[view] = token
            tick += 1
            await asyncio.sleep(_TICK_SECONDS)

    def _newest(self, view: str, since: int | None, token: int) -> list[StoredRow] | list[StoredChange]:
        store = self._site.store
        if since is None and store.count(view) <= _ROWS:
            return store.read(view, Query(limit=_ROWS)).rows
        return store.changes(view, max(since or 0, token - _ROWS), _ROWS)

    def _state(self) -> dict[str, object]:
        site = self._site
        topics = in_order(site.broker.topics.values()) if site.broker is not None else []
        return {
            "app": site.app.name if site.app is not None else None,
            "health": self._monitoring.state(),
            "topics": [
                {
                    "name": topic.name,
                    "partitions": topic.partitions,
                    "end": topic.end,
                    "history": [round(rate, 1) for rate in topic.history],
                }
                for topic in topics
            ],
            "pipelines": [
                {**status, "lag": lag(status), "holding": status.get("holding")}
                for status in pipelines(site.store)
            ],
            "views": [
                {"name": view.name, "key": view.key, "count": site.store.count(view.name)}
                for view in site.store.definitions()
                if not view.name.startswith(OWN)
            ],
            "alerts": counts(site.store),
        }


def in_order(topics: Iterable[TopicRate]) -> list[TopicRate]:
    """Return topics by name; what Headwater keeps for itself comes last."""
    return sorted(topics, key=lambda topic: (topic.name.startswith("headwater."), topic.name))


async def _encoded(events: AsyncIterator[str]) -> AsyncIterator[bytes]:
    async for text in events:
        yield text.encode()


def _rows(view: str, found: list[StoredRow] | list[StoredChange]) -> str:
    # Of several changes of one row in a tick, the screen shows the last.
    last = {each.key: each.row for each in found}
    rows = ",".join(entry(key, row) for key, row in last.items())
    return f'{{"view":{json.dumps(view)},"rows":[{rows}]}}'
