"""The HTTP application: what it knows, and what it serves where."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headwater.app import App
from headwater.core.errors import HeadwaterError
from headwater.events.keys import keys_topic
from headwater.serve.access import Access
from headwater.serve.alert_routes import Alerts
from headwater.serve.alerts import AlertSender
from headwater.serve.broker import Broker
from headwater.serve.channels import Receiver
from headwater.serve.errors import handlers
from headwater.serve.event_routes import Events
from headwater.serve.event_stores import EventStores
from headwater.serve.guard import Guard
from headwater.serve.hooks import Hooks
from headwater.serve.hub import Hub
from headwater.serve.index_routes import Indexes
from headwater.serve.ingest import Ingest
from headwater.serve.live import Live
from headwater.serve.monitoring import Monitoring
from headwater.serve.openapi import OpenApi
from headwater.serve.page import Page
from headwater.serve.progress import Progress
from headwater.serve.session import Session
from headwater.serve.topic_reads import TopicReads
from headwater.serve.views import Views
from headwater.serve.watch import Watch
from headwater.views import ViewStore

__all__ = ["Counters", "Site"]

logger = logging.getLogger(__name__)

_EXPIRE_SECONDS = 1.0


@dataclass
class Counters:
    """How many requests were answered how."""

    open: int = 0
    answers: Counter[int] = field(default_factory=Counter)


class Site:
    """Everything the handlers share."""

    def __init__(
        self,
        store: ViewStore,
        *,
        broker: Broker | None = None,
        app: App | None = None,
        receivers: Sequence[Receiver] = (),
        hook_secrets: Mapping[str, bytes] | None = None,
        names: Sequence[str] = (),
        access: Access | None = None,
        events: EventStores | None = None,
        derived: Path = Path("headwater-data/derived"),
    ) -> None:
        self.store = store
        self.broker = broker
        self.app = app
        self.counters = Counters()
        self.watch = Watch(store)
        self.hub = Hub(store, self.watch)
        self._ingest = Ingest(broker, app)
        stores = events.names if events is not None else ()
        self._reads = TopicReads(
            broker.url if broker is not None else None, app, frozenset(map(keys_topic, stores))
        )
        self.senders = [AlertSender(receiver, store, self.watch) for receiver in receivers]
        self.hooks = Hooks(broker, self._ingest.once, app, hook_secrets or {})
        self.access = access or Access()
        self._names = names
        self._events = events
        self._indexes = Indexes(app, derived)

    def asgi(self) -> Starlette:
        """Return the application for a server to run."""
        routes = [
            # Those that are asked most come first: routes are tried in turn.
            *Views(self.store, self.watch, self.hub, Progress(self.store, self.broker)).routes(),
            *Page().routes(),
            *Session(self.access).routes(),
            *Live(self).routes(),
            *self._ingest.routes(),
            *self._reads.routes(),
            *self.hooks.routes(),
            *Alerts(self.store, self.watch, self.senders).routes(),
            *(Events(self._events).routes() if self._events is not None else ()),
            *self._indexes.routes(),
            *Monitoring(self).routes(),
        ]
        return Starlette(
            routes=[*routes, *OpenApi(routes).routes()],
            middleware=[
                Middleware(_Counting, counters=self.counters),
                Middleware(Guard, names=self._names, access=self.access),
            ],
            exception_handlers=handlers,
            lifespan=self._lifespan,
        )

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        if self.broker is not None:
            self.broker.start()
        tasks = [
            asyncio.create_task(sender.run(), name=f"alert {sender.receiver.name}") for sender in self.senders
        ]
        tasks.append(asyncio.create_task(self._expire(), name="expire"))
        try:
            yield
        finally:
            await self.watch.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._events is not None:
                await asyncio.to_thread(self._events.close)
            await asyncio.to_thread(self._ingest.close)
            self._reads.close()
            if self.broker is not None:
                await self.broker.close()

    async def _expire(self) -> None:
        """Let rows go whose time has run out, also while nothing is committed."""
        told = ""
        while True:
            await asyncio.sleep(_EXPIRE_SECONDS)
            self.access.refresh()
            try:
                await asyncio.to_thread(self.store.expire)
                told = ""
            except HeadwaterError as error:
                if str(error) != told:  # once, not each second for as long as the store is away
                    told = str(error)
                    logger.warning("rows whose time has run out are still there: %s", told)


class _Counting:
    """ASGI middleware that counts requests and answers."""

    def __init__(self, app: ASGIApp, *, counters: Counters) -> None:
        self._app = app
        self._counters = counters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def count(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._counters.answers[message["status"]] += 1
            await send(message)

        self._counters.open += 1
        try:
            await self._app(scope, receive, count)
        finally:
            self._counters.open -= 1
