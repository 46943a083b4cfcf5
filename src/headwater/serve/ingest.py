"""`POST /topics/NAME`: records over HTTP, acknowledged when the broker has acknowledged them.

An answer 200 means that every record is in the topic. Any other may leave some of an array there, as with
any producer that is cut off: whoever sends again sends at least once. With the header `Idempotency-Key` a request is
one transaction, and is written once however often it comes.

JSON is one object or an array of them. Newline-delimited JSON is read as it comes, a part at a time, and may be as
long as it likes; with an idempotency key it is one request like an array.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from headwater.app import App, Topic
from headwater.serve.broker import Broker, BrokerAway, RecordTooLarge, UnknownTopic
from headwater.serve.checks import MAX_UNREAD, problem, unread
from headwater.serve.errors import HttpError
from headwater.serve.once import KeyReused, OnceWriter
from headwater.serve.progress import write_places
from headwater.serve.records import MAX_RECORDS, Record, key_of, split, split_lines

__all__ = ["Ingest", "read_body"]

MAX_BODY_BYTES = 8 * 1024 * 1024
_BODY_SECONDS = 60
_LINES = ("application/x-ndjson", "application/ndjson", "application/jsonl")
_LINES_AT_ONCE = 1000
_BYTES_AT_ONCE = 1024 * 1024


class Ingest:
    """The handler of `/topics`."""

    def __init__(self, broker: Broker | None, app: App | None) -> None:
        self._broker = broker
        self._app = app
        self._once = OnceWriter(broker.url) if broker is not None else None

    def routes(self) -> list[Route]:
        """Return what is served."""
        return [Route("/topics/{topic}", self.post, methods=["POST"])]

    @property
    def once(self) -> OnceWriter | None:
        """What writes requests once: of such writers, the last that was opened alone can write."""
        return self._once

    def close(self) -> None:
        """Finish what is under way."""
        if self._once is not None:
            self._once.close()

    async def post(self, request: Request) -> Response:
        """Append the body's records to a topic."""
        name: str = request.path_params["topic"]
        if self._broker is None or self._once is None:
            raise HttpError(503, "no broker is given: start with --broker kafka://HOST:PORT")
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json" and kind not in _LINES:
            raise HttpError(415, "send JSON, with Content-Type: application/json or application/x-ndjson")
        topic = self._topic(name)
        key = request.headers.get("idempotency-key")
        if kind in _LINES and key is None:
            return await self._stream(self._broker, request, name, topic)
        body = await read_body(request)
        records = split(body) if kind == "application/json" else split_lines(body)
        payload = _payload(records, topic, request.query_params.get("key"))
        repeated = False
        async with _told(name, topic):
            if key is None:
                places = await self._broker.send(name, payload)
            else:
                await self._broker.require(name)
                places, repeated = await self._once.write(name, payload, _checked(key))
        answer = {
            "topic": name,
            "records": [{"partition": partition, "offset": offset} for partition, offset in places],
            "token": write_places(name, places),
            **_with(_unread(records, topic)),
        }
        return JSONResponse(answer, headers={"Idempotent-Replayed": "true"} if repeated else None)

    async def _stream(self, broker: Broker, request: Request, name: str, topic: Topic | None) -> Response:
        """Append lines as they come: those that are acknowledged make room for the next."""
        key = request.query_params.get("key")
        count = 0
        names: list[str] = []
        last: list[tuple[int, int]] = []
        try:
            async for lines in _lines(request):
                records = split_lines(b"\n".join(lines), count)
                payload = _payload(records, topic, key, count)
                async with _told(name, topic):
                    places = await broker.send(name, payload)
                count += len(records)
                names = sorted({*names, *_unread(records, topic)})[:MAX_UNREAD]
                # Of each partition the last: there may be any number of records.
                last = list(dict(sorted([*last, *places])).items())
        except HttpError as error:
            if not count:
                raise
            text = f"{error}; the {count} records before this part are in the topic"
            raise HttpError(error.status, text, error.headers) from None
        token = write_places(name, last)
        return JSONResponse({"topic": name, "count": count, "token": token, **_with(names)})

    def _topic(self, name: str) -> Topic | None:
        if self._app is None:
            return None
        definition = self._app.definitions.get(name)
        if not isinstance(definition, Topic):
            declared = sorted(d.name for d in self._app.definitions.values() if isinstance(d, Topic))
            raise HttpError(
                404, f"the application declares no topic named {name}: it has {', '.join(declared) or 'none'}"
            )
        if definition.format != "json":
            raise HttpError(415, f"the topic {name} holds {definition.format}, not JSON")
        return definition


@asynccontextmanager
async def _told(name: str, topic: Topic | None) -> AsyncIterator[None]:
    """Tell a client what the broker refuses."""
    try:
        yield
    except UnknownTopic as error:
        if topic is not None:
            text = f"the topic {name} is not there yet: `headwater run` makes it when it starts"
            raise HttpError(503, text, {"Retry-After": "1"}) from None
        raise HttpError(404, str(error)) from None
    except RecordTooLarge as error:
        raise HttpError(413, str(error)) from None
    except KeyReused as error:
        raise HttpError(422, str(error)) from None
    except BrokerAway as error:
        raise HttpError(503, str(error), {"Retry-After": "1"}) from None


def _payload(
    records: Sequence[Record], topic: Topic | None, key: str | None, before: int = 0
) -> list[tuple[bytes | None, bytes]]:
    """Return keys and values, or raise `HttpError` where a record does not fit the topic's schema."""
    for number, record in enumerate(records, before):
        found = problem(record.columns, topic.fields) if topic is not None else None
        if found:
            raise HttpError(400, f"record {number}: {found}" if len(records) > 1 or before else found)
    return [(_key(record, topic, key), record.text.encode()) for record in records]


def _unread(records: Sequence[Record], topic: Topic | None) -> list[str]:
    return unread((record.columns for record in records), topic.fields) if topic is not None else []


def _with(names: list[str]) -> dict[str, list[str]]:
    """Return what an answer says of fields that no pipeline will see: nothing where all are declared."""
    return {"unread": names} if names else {}


def _key(record: Record, topic: Topic | None, given: str | None) -> bytes | None:
    if given is not None:
        return given.encode()
    return key_of(record, topic.key) if topic is not None else None


def _checked(key: str) -> str:
    if not 1 <= len(key) <= 200 or not (key.isascii() and key.isprintable()):
        raise HttpError(
            400, "an Idempotency-Key is 1 to 200 printable ASCII characters: a random UUID is one"
        )
    return key


async def _lines(request: Request) -> AsyncIterator[list[bytes]]:
    """Yield the lines of a body, some at a time, and never more in memory than those and one chunk."""
    rest = b""
    some: list[bytes] = []
    size = 0
    chunks = request.stream()
    now = asyncio.get_running_loop().time
    due = now() + _BODY_SECONDS
    while True:
        try:
            async with asyncio.timeout_at(due):
                chunk = await anext(chunks, None)
        except TimeoutError:
            if some:
                yield some
            late = (
                f"no line came to its end within {_BODY_SECONDS} seconds: send one, or an empty one, before"
            )
            raise HttpError(408, late, {"Connection": "close"}) from None
        if chunk is None:
            break
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > MAX_BODY_BYTES:
            raise HttpError(413, f"a line is at most {MAX_BODY_BYTES} bytes")
        for line in lines:
            some.append(line)
            size += len(line)
            if len(some) == _LINES_AT_ONCE or size >= _BYTES_AT_ONCE:
                yield some
                some, size = [], 0
        if lines:  # counted from here on: it may have taken the broker a while to take them
            due = now() + _BODY_SECONDS
    if rest.strip():
        some.append(rest)
    if some:
        yield some


async def read_body(request: Request) -> bytes:
    """Return a request's body; refuse one that is too large, or too slow, before all of it is read."""
    too_large = HttpError(
        413, f"a body is at most {MAX_BODY_BYTES} bytes and {MAX_RECORDS} records: send fewer records at once"
    )
    length = request.headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()) or int(length) > MAX_BODY_BYTES:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    raise too_large
    except TimeoutError:
        late = f"the body was not there within {_BODY_SECONDS} seconds: send fewer records at once"
        raise HttpError(408, late, {"Connection": "close"}) from None
    return bytes(body)
