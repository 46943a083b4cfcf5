"""`/alerts`: what waits, what was given up and why, trying that again, and the feed for browsers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from headwater.serve.alert_feed import alert_events
from headwater.serve.alerts import AlertSender
from headwater.serve.errors import HttpError
from headwater.serve.streams import EventStream
from headwater.serve.watch import Watch
from headwater.views import ALERT, UnknownView, ViewStore

__all__ = ["Alerts", "counts"]


class Alerts:
    """The handlers of `/alerts`."""

    def __init__(self, store: ViewStore, watch: Watch, senders: Sequence[AlertSender] = ()) -> None:
        self._store = store
        self._watch = watch
        self._senders = senders

    def routes(self) -> list[Route]:
        """Return what is served."""
        return [
            Route("/alerts", self.index),
            Route("/alerts/feed", self.feed),
            Route("/alerts/{alert}/dead", self.dead),
            Route("/alerts/{alert}/redrive", self.redrive, methods=["POST"]),
        ]

    async def index(self, request: Request) -> Response:
        """Answer with how many messages of each alert wait and were given up."""
        return JSONResponse({"alerts": await asyncio.to_thread(counts, self._store)})

    async def dead(self, request: Request) -> Response:
        """Answer with the messages that were given up, newest first."""
        alert: str = request.path_params["alert"]
        try:
            found = await asyncio.to_thread(self._store.outbox.dead, ALERT + alert)
        except UnknownView:
            raise HttpError(404, f"there is no alert named {alert}") from None
        dead = [
            {
                "token": each.token,
                "tries": each.tries,
                "error": each.error,
                "held": each.held,
                "row": json.loads(each.row),
            }
            for each in found
        ]
        return JSONResponse({"alert": alert, "dead": dead})

    async def redrive(self, request: Request) -> Response:
        """Send those again that were given up."""
        alert: str = request.path_params["alert"]
        try:
            count = await asyncio.to_thread(self._store.outbox.redrive, ALERT + alert)
        except UnknownView:
            raise HttpError(404, f"there is no alert named {alert}") from None
        for sender in self._senders:
            sender.nudge()
        return JSONResponse({"alert": alert, "redriven": count})

    async def feed(self, request: Request) -> Response:
        """Answer with the messages to browsers, as they come."""
        since = request.headers.get("last-event-id") or request.query_params.get("since")
        events = await alert_events(self._store, self._watch, since)
        return EventStream(events)


def counts(store: ViewStore) -> list[dict[str, object]]:
    """Return every alert, with how many of its messages wait and were given up."""
    names = [view.name for view in store.definitions() if view.name.startswith(ALERT)]
    found = {name: store.outbox.counts(name) for name in names}
    return [
        {"name": name.removeprefix(ALERT), "waiting": waiting, "dead": dead}
        for name, (waiting, dead) in found.items()
    ]
