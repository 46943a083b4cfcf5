"""The HTTP application: what it knows, and what it serves where."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headwater.app import App
from headwater.serve.alert_routes import Alerts
from headwater.serve.alerts import AlertSender, Receiver
from headwater.serve.broker import Broker
from headwater.serve.errors import handlers
from headwater.serve.guard import Guard
from headwater.serve.ingest import Ingest
from headwater.serve.live import Live
from headwater.serve.monitoring import Monitoring
from headwater.serve.page import Page
from headwater.serve.views import Views
from headwater.serve.watch import Watch
from headwater.views import ViewStore

__all__ = ["Counters", "Site"]


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
        names: Sequence[str] = (),
    ) -> None:
        self.store = store
        self.broker = broker
        self.app = app
        self.counters = Counters()
        self.watch = Watch(store)
        self.senders = [AlertSender(receiver, store, self.watch) for receiver in receivers]
        self._names = names

    def asgi(self) -> Starlette:
        """Return the application for a server to run."""
        routes = [
            *Page().routes(),
            *Live(self).routes(),
            *Views(self.store, self.watch).routes(),
            *Ingest(self.broker, self.app).routes(),
            *Alerts(self.store, self.senders).routes(),
            *Monitoring(self).routes(),
        ]
        return Starlette(
            routes=routes,
            middleware=[
                Middleware(_Counting, counters=self.counters),
                Middleware(Guard, names=self._names),
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
        try:
            yield
        finally:
            await self.watch.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self.broker is not None:
                await self.broker.close()


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
