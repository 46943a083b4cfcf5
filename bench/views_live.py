"""Both ends of the live-views scenario: a handler written by hand, and those who read.

python -m bench.views_live serve STORE PORT            the same store behind a few lines of Starlette
python -m bench.views_live reads URL SECONDS           prints requests per second
python -m bench.views_live follow URL STORE READERS CHANGES
                                                       prints the 99th percentile in ms, and how many got all
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast
from urllib.parse import urlsplit

import uvloop

from bench.figures import percentile
from headwater.views import Change, ViewDefinition, open_store

ROWS = 1000
CONNECTIONS = 32
OPENING = 200
"""How many connections are opened at once."""
PAUSE_SECONDS = 0.2


def key(n: int) -> str:
    return f"k{n:04}"


def fill(store_url: str) -> None:
    with open_store(store_url) as store:
        store.define(ViewDefinition("sales", ("k",)))
        rows = [
            Change(key(n), json.dumps({"k": key(n), "revenue": n, "text": "x" * 60})) for n in range(ROWS)
        ]
        store.commit("q", 0, "sales", rows)


def serve(store_url: str, port: int) -> None:
    """Serve rows and changes as one would write it: a queue for each reader, one task that asks the store."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route

    store = open_store(store_url)
    queues: set[asyncio.Queue[str]] = set()

    async def row(request: Request) -> Response:
        found = await asyncio.to_thread(store.row, "sales", request.path_params["key"])
        if found is None:
            return Response(status_code=404)
        body = f'{{"key":{json.dumps(found.key)},"row":{found.row}}}'
        return Response(body, media_type="application/json")

    async def changes(request: Request) -> Response:
        queue: asyncio.Queue[str] = asyncio.Queue()

        async def stream() -> AsyncIterator[str]:
            queues.add(queue)
            try:
                yield "event: ready\ndata: {}\n\n"
                while True:
                    yield await queue.get()
            finally:
                queues.discard(queue)

        return StreamingResponse(stream(), media_type="text/event-stream")

    async def ask() -> None:
        position = store.token("sales")
        while True:
            await asyncio.sleep(0.02)
            for change in await asyncio.to_thread(store.changes, "sales", position):
                position = change.token
                for queue in queues:
                    queue.put_nowait(f'event: change\ndata: {{"key":"{change.key}","row":{change.row}}}\n\n')

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(ask())
        yield
        task.cancel()

    routes = [Route("/views/sales/changes", changes), Route("/views/sales/{key}", row)]
    app = Starlette(routes=routes, lifespan=lifespan)
    _raise_files()
    uvicorn.run(app, port=port, loop="uvloop", log_level="error", backlog=4096)


async def reads(url: str, seconds: float) -> float:
    """Return how many single rows were answered in a second."""
    place = urlsplit(url)
    ends = time.monotonic() + seconds

    async def ask(number: int) -> int:
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        count = 0
        while time.monotonic() < ends:
            name = key((number * 31 + count * 7) % ROWS)
            writer.write(f"GET /views/sales/{name} HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                raise AssertionError(head)
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            await reader.readexactly(length)
            count += 1
        writer.close()
        return count

    return sum(await asyncio.gather(*map(ask, range(CONNECTIONS)))) / seconds


class Reader(asyncio.Protocol):
    """Counts changes, and takes the time of each."""

    def __init__(self, place: str, delays: list[float]) -> None:
        self._place = place
        self._delays = delays
        self._rest = b""
        self.count = 0
        self.ready = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        head = f"GET /views/sales/changes?k[gte]=k0000&k[lt]=k0001 HTTP/1.1\r\nHost: {self._place}\r\n"
        # uvloop's transports are of no class of asyncio's.
        cast(asyncio.WriteTransport, transport).write(f"{head}Accept: text/event-stream\r\n\r\n".encode())

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        *events, self._rest = (self._rest + data).split(b"\n\n")
        for event in events:
            if b"event: change" in event:
                self.count += 1
                self._delays.append(now - float(event.partition(b'"sent": ')[2].partition(b"}")[0]))
            elif b"event: ready" in event and not self.ready.done():
                self.ready.set_result(None)


async def _connected(reader: Reader, host: str, port: int) -> asyncio.BaseTransport:
    transport, _ = await asyncio.get_running_loop().create_connection(lambda: reader, host, port)
    return transport


async def follow(url: str, store_url: str, count: int, changes: int) -> tuple[float, int]:
    """Return the 99th percentile from a change's commit to a reader, in ms, and how many readers got all changes."""
    loop = asyncio.get_running_loop()
    place = urlsplit(url)
    host, port = place.hostname or "", place.port or 80
    delays: list[float] = []
    readers: list[Reader] = []
    transports: list[asyncio.BaseTransport] = []
    for start in range(0, count, OPENING):
        some = [Reader(place.netloc, delays) for _ in range(min(OPENING, count - start))]
        transports += await asyncio.gather(*(_connected(each, host, port) for each in some))
        readers += some
        await asyncio.wait_for(asyncio.gather(*(each.ready for each in some)), 30)
    with open_store(store_url) as store:
        epoch = store.epoch("q")
        for n in range(changes):
            row = json.dumps({"k": key(0), "n": n, "sent": time.monotonic()})
            await asyncio.to_thread(store.commit, "q", epoch + 1 + n, "sales", [Change(key(0), row)])
            deadline = loop.time() + 30
            while any(each.count <= n for each in readers) and loop.time() < deadline:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            await asyncio.sleep(PAUSE_SECONDS)
    complete = sum(each.count == changes for each in readers)
    for transport in transports:
        transport.close()
    return percentile(sorted(delays), 0.99) * 1000, complete


def _raise_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", store_url, port]:
            serve(store_url, int(port))
        case ["reads", url, seconds]:
            print(uvloop.run(reads(url, float(seconds))))
        case ["follow", url, store_url, count, changes]:
            _raise_files()
            print(*uvloop.run(follow(url, store_url, int(count), int(changes))))
