"""`/events`: streams of the event stores, read, and appended to under an expected version.

A stream is named STORE/NAME. Its version is its ETag: `If-Match: "3"` appends to version 3 and nothing else,
`If-Match: *` to a stream that has events, `If-None-Match: *` to one that has none. DELETE erases the personal data
about the subject of that name; the events stay.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, ParamSpec, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from headwater.core.errors import HeadwaterError
from headwater.events import (
    ANY,
    NO_STREAM,
    STREAM_EXISTS,
    BadEvent,
    EventError,
    EventStore,
    Expected,
    NewEvent,
    WrongVersion,
)
from headwater.serve.errors import HttpError
from headwater.serve.event_stores import EventStores
from headwater.serve.ingest import read_body
from headwater.serve.parameters import count
from headwater.serve.records import split

__all__ = ["Events"]

P = ParamSpec("P")
T = TypeVar("T")

MAX_EVENTS = 10_000
_FIELDS = ("type", "data", "id", "schema", "personal", "subject")
_NOT_A_VERSION = 'is a version in quotes like "3", or *'


class Events:
    """The handlers of `/events`."""

    def __init__(self, stores: EventStores) -> None:
        self._stores = stores

    def routes(self) -> list[Route]:
        """Return what is served."""
        return [
            Route("/events", self.index),
            Route("/events/{store}", self.streams),
            Route("/events/{store}/{stream:path}", self.read, methods=["GET"]),
            Route("/events/{store}/{stream:path}", self.append, methods=["POST"]),
            Route("/events/{store}/{stream:path}", self.erase, methods=["DELETE"]),
        ]

    async def index(self, request: Request) -> Response:
        """Answer with the names of the stores."""
        return JSONResponse({"stores": sorted(self._stores.names)})

    async def streams(self, request: Request) -> Response:
        """Answer with the streams of a store and their versions, by name."""
        store = await self._store(request)
        given = request.query_params
        after, limit = given.get("after", ""), count(given, "limit", 1000, most=MAX_EVENTS)
        found = await _in_thread(store.streams, after, limit)
        streams = [{"stream": f"{store.name}/{name}", "version": version} for name, version in found]
        return JSONResponse({"store": store.name, "streams": streams})

    async def read(self, request: Request) -> Response:
        """Answer with a stream's events: behind a version, up to a version or a time."""
        store, stream = await self._store(request), request.path_params["stream"]
        given = request.query_params
        after, until = count(given, "after", 0, most=1 << 53), count(given, "until", 1 << 53, most=1 << 53)
        limit = count(given, "limit", 1000, most=MAX_EVENTS)
        at = _time(request)

        def read() -> tuple[int, list[dict[str, Any]]]:
            version = store.version(stream, at=at)
            # Up to that version: what is appended meanwhile belongs to the next answer, with the next ETag.
            events = store.read(stream, after=after, until=min(until, version))
            return version, [event.as_dict() for event in itertools.islice(events, limit)]

        version, events = await _in_thread(read)
        if not version:
            raise HttpError(404, f"the stream {store.name}/{stream} has no events")
        headers = {"ETag": f'"{version}"', "Cache-Control": "no-cache"}
        if f'"{version}"' in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return JSONResponse(
            {"stream": f"{store.name}/{stream}", "version": version, "events": events}, headers=headers
        )

    async def append(self, request: Request) -> Response:
        """Append the body's events, all or none."""
        store, stream = await self._store(request), request.path_params["stream"]
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise HttpError(415, "send JSON, with Content-Type: application/json")
        expected = _expected(request)
        events = [_new_event(record.columns) for record in split(await read_body(request))]
        if not events:
            raise HttpError(400, "the array holds no events: send one at least")
        try:
            future = store.submit(
                stream,
                events,
                expected=expected,
                command_id=request.headers.get("idempotency-key"),
                causation_id=request.headers.get("x-causation-id"),
                correlation_id=request.headers.get("x-correlation-id"),
            )
            appended = await asyncio.wrap_future(future)
        except WrongVersion as conflict:
            return JSONResponse(
                {"error": str(conflict), "version": conflict.actual}, 412, {"ETag": f'"{conflict.actual}"'}
            )
        except HeadwaterError as error:
            raise _refusal(error) from None
        answer = {
            "stream": f"{store.name}/{stream}",
            "version": appended.version,
            "repeated": appended.repeated,
            "events": [{"version": event.version, "id": event.id} for event in appended.events],
        }
        status = 200 if appended.repeated else 201
        return JSONResponse(answer, status, {"ETag": f'"{appended.version}"'})

    async def erase(self, request: Request) -> Response:
        """Erase the personal data about the subject of a name, a stream's or another."""
        store, subject = await self._store(request), request.path_params["stream"]
        count = await _in_thread(store.erase, subject)
        if not count:
            raise HttpError(404, f"no event of {store.name} has personal data about {subject}")
        return JSONResponse({"store": store.name, "subject": subject, "events": count})

    async def _store(self, request: Request) -> EventStore:
        name: str = request.path_params["store"]
        if name not in self._stores.names:
            served = ", ".join(sorted(self._stores.names)) or "none: name one with --events"
            raise HttpError(404, f"there is no event store {name} here; there are {served}")
        return await _in_thread(self._stores.open, name)


async def _in_thread(work: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    try:
        return await asyncio.to_thread(work, *arguments, **options)
    except HeadwaterError as error:
        raise _refusal(error) from None


def _refusal(error: HeadwaterError) -> HttpError:
    if isinstance(error, BadEvent):
        return HttpError(400, str(error))
    headers = {"Retry-After": "1"} if not isinstance(error, EventError) or error.is_passing else None
    return HttpError(503, str(error), headers)


def _expected(request: Request) -> Expected:
    match, none_match = request.headers.get("if-match"), request.headers.get("if-none-match")
    if match is not None and none_match is not None:
        raise HttpError(400, "If-Match and If-None-Match do not go together: send one of them")
    if none_match is not None:
        if none_match.strip() != "*":
            raise HttpError(400, "If-None-Match is * here, for a stream that has no events yet")
        return NO_STREAM
    if match is None:
        return ANY
    if match.strip() == "*":
        return STREAM_EXISTS
    version = match.strip().removeprefix('"').removesuffix('"')
    if not (version.isascii() and version.isdigit() and len(version) < 16):
        raise HttpError(400, f"If-Match: {match} does not fit: it {_NOT_A_VERSION}")
    return int(version)


def _new_event(fields: dict[str, Any]) -> NewEvent:
    unknown = sorted(fields.keys() - set(_FIELDS))
    if unknown:
        raise HttpError(400, f"an event has no field {unknown[0]!r}: it has {', '.join(_FIELDS)}")
    if not isinstance(fields.get("type"), str):
        raise HttpError(400, 'an event has a type, as in {"type": "Deposited", "data": {"amount": 10}}')
    personal = fields.get("personal") or []
    if not (isinstance(personal, list) and all(isinstance(name, str) for name in personal)):
        raise HttpError(400, 'personal is an array of names in the data, as in ["owner"]')
    return NewEvent(
        fields["type"],
        fields.get("data", {}),
        fields.get("id"),
        fields.get("schema"),
        personal,
        fields.get("subject"),
    )


def _time(request: Request) -> datetime | None:
    text = request.query_params.get("at")
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        moment = moment.replace(tzinfo=moment.tzinfo or UTC)
        moment.timestamp()
    except (ValueError, OverflowError):
        raise HttpError(400, f"at={text} is not ISO 8601, like 2026-01-31T12:00:00Z") from None
    return moment
