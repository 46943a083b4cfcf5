"""The HTTP server as a process: open the store, listen, say so, and stop cleanly when told to."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import uvicorn
import uvloop

from headwater.app import App, load
from headwater.core.errors import CannotListen
from headwater.core.urls import KafkaUrl
from headwater.serve.access import Access
from headwater.serve.broker import Broker
from headwater.serve.channels import receivers
from headwater.serve.event_stores import EventStores
from headwater.serve.guard import check_listen
from headwater.serve.hooks import hook_secrets
from headwater.serve.protocol import BoundedHttp
from headwater.serve.site import Site
from headwater.views import open_store, shown

__all__ = ["ServeOptions", "run_server"]

logger = logging.getLogger(__name__)

_MAX_REQUESTS = 20_000
"""Open at once, live feeds among them."""
_FILES_BESIDE = 256
"""Descriptors that are not connections of readers."""
_MAX_MESSAGE_BYTES = 64 * 1024
"""Of a WebSocket message that comes in: none is listened to."""
_DRAIN_SECONDS = 1


@dataclass(frozen=True)
class ServeOptions:
    """What the server is started with."""

    views: str
    http: tuple[str, int] = ("127.0.0.1", 8080)
    application: Path | None = None
    broker: KafkaUrl | None = None
    insecure_listen: bool = False
    names: tuple[str, ...] = ()
    tokens: Path | None = None
    """The file of the tokens that are let in."""
    allow_private_webhooks: bool = False
    """Whether alerts may be sent to addresses that are not public."""
    events: tuple[str, ...] = ()
    """The event stores to serve."""
    events_data: Path = Path("headwater-data/events")
    derived: Path = Path("headwater-data/derived")
    """The directory of the search indexes."""


class _Server(uvicorn.Server):
    """Says when it listens, and leaves signals to us: event streams have to end before connections can."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def run_server(options: ServeOptions) -> int:
    """Serve until SIGTERM or SIGINT, and return the process's exit status."""
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # what it says of starting, we say in one line
    logging.getLogger("uvicorn.error").addFilter(_is_ours_to_know)
    access = Access(options.tokens, os.environ)
    check_listen(options.http[0], insecure=options.insecure_listen, tokens=access.required)
    app: App | None = load(options.application) if options.application is not None else None
    return uvloop.run(_serve(options, app, access))


async def _serve(options: ServeOptions, app: App | None, access: Access) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    with open_store(options.views) as store:
        broker = Broker(options.broker) if options.broker is not None else None
        site = Site(
            store,
            broker=broker,
            app=app,
            receivers=receivers(app, allow_private=options.allow_private_webhooks) if app is not None else (),
            hook_secrets=hook_secrets(app) if app is not None else None,
            names=(options.http[0], *options.names),
            access=access,
            events=EventStores(options.broker, options.events, options.events_data),
            derived=options.derived,
        )
        server = _Server(
            uvicorn.Config(
                site.asgi(),
                log_config=None,
                access_log=False,
                server_header=False,
                limit_concurrency=min(_MAX_REQUESTS, _raised_files() - _FILES_BESIDE),
                timeout_graceful_shutdown=_DRAIN_SECONDS,
                lifespan="on",
                http=BoundedHttp,
                ws="websockets-sansio",
                ws_max_size=_MAX_MESSAGE_BYTES,
            )
        )
        with _listen(*options.http) as listener:
            serving = asyncio.create_task(server.serve([listener]))
            waiting = [asyncio.create_task(event.wait()) for event in (server.listening, stop)]
            await asyncio.wait((serving, *waiting), return_when=asyncio.FIRST_COMPLETED)
            if server.started:
                host, port = listener.getsockname()[:2]
                place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
                sys.stdout.write(f"ready http=http://{place}/ views={shown(options.views)}\n")
                sys.stdout.flush()
                await asyncio.wait((serving, waiting[1]), return_when=asyncio.FIRST_COMPLETED)
            logger.info("stopping")
            for task in waiting:
                task.cancel()
            await site.watch.close()
            server.should_exit = True
            await serving
    return 0 if server.started else 1


def _is_ours_to_know(record: logging.LogRecord) -> bool:
    """Leave out what any client can bring about: refused WebSockets, readers hung up on, what is no HTTP."""
    return not record.getMessage().startswith(
        ("ASGI callable returned without completing", "Invalid HTTP request", "Unsupported upgrade")
    )


def _raised_files() -> int:
    """Let this process have as many open files as it may: each reader of a live feed is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else 1 << 20


def _listen(host: str, port: int) -> socket.socket:
    try:
        [(family, _, _, _, address), *_] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return socket.create_server(address[:2], family=family, backlog=4096)
    except OSError as error:
        raise CannotListen(host, port, "HTTP", error, "another address with --http") from error
