"""A server in a thread, and a reader of its event streams."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn

from headwater.app import App
from headwater.serve.access import Access
from headwater.serve.broker import Broker
from headwater.serve.channels import Receiver
from headwater.serve.event_stores import EventStores
from headwater.serve.protocol import BoundedHttp
from headwater.serve.site import Site
from headwater.views import ViewStore


@dataclass
class Served:
    site: Site
    url: str
    client: httpx.Client

    def get(self, path: str, **parameters: str) -> Any:
        answer = self.client.get(path, params=parameters or None)
        assert answer.status_code == 200, answer.text
        return answer.json()


@contextmanager
def served(
    store: ViewStore,
    *,
    broker: Broker | None = None,
    app: App | None = None,
    receivers: Sequence[Receiver] = (),
    hook_secrets: Mapping[str, bytes] | None = None,
    events: EventStores | None = None,
    access: Access | None = None,
    port: int = 0,
) -> Iterator[Served]:
    site = Site(
        store,
        broker=broker,
        app=app,
        receivers=receivers,
        hook_secrets=hook_secrets,
        events=events,
        access=access,
    )
    config = uvicorn.Config(
        site.asgi(),
        log_config=None,
        lifespan="on",
        timeout_graceful_shutdown=1,
        http=BoundedHttp,
        ws="websockets-sansio",
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", port)) as listener:
        thread = threading.Thread(target=lambda: asyncio.run(_run(server, site, listener)))
        thread.start()
        while not server.started:
            assert thread.is_alive()
            thread.join(0.01)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            with httpx.Client(base_url=url, timeout=40, trust_env=False) as client:
                yield Served(site, url, client)
        finally:
            server.should_exit = True
            thread.join(10)
            assert not thread.is_alive()


async def _run(server: uvicorn.Server, site: Site, listener: socket.socket) -> None:
    async def end_streams() -> None:
        while not server.should_exit:  # noqa: ASYNC110  # set from another thread
            await asyncio.sleep(0.02)
        await site.watch.close()

    ending = asyncio.create_task(end_streams())
    await server.serve([listener])
    await ending


@dataclass(frozen=True)
class Event:
    name: str
    id: str | None
    data: Any


def events(answer: httpx.Response) -> Iterator[Event]:
    """Yield the server-sent events of an answer, as a browser would read them."""
    fields: dict[str, str] = {}
    for line in answer.iter_lines():
        if not line:
            if "data" in fields:
                yield Event(fields.get("event", "message"), fields.get("id"), json.loads(fields["data"]))
            fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value
