"""`POST /topics/NAME`: records over HTTP, acknowledged when the broker has acknowledged them.

An answer 200 means that every record is in the topic. Any other may leave some of an array there, as with
any producer that is cut off: whoever sends again sends at least once.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from headwater.app import App, Topic
from headwater.serve.broker import Broker, BrokerAway, RecordTooLarge, UnknownTopic
from headwater.serve.checks import problem
from headwater.serve.errors import HttpError
from headwater.serve.records import Record, split
from headwater.views import encode

__all__ = ["Ingest"]

MAX_BODY_BYTES = 8 * 1024 * 1024


class Ingest:
    """The handler of `/topics`."""

    def __init__(self, broker: Broker | None, app: App | None) -> None:
        self._broker = broker
        self._app = app

    def routes(self) -> list[Route]:
        """Return what is served."""
        return [Route("/topics/{topic}", self.post, methods=["POST"])]

    async def post(self, request: Request) -> Response:
        """Append the body's records to a topic."""
        name: str = request.path_params["topic"]
        if self._broker is None:
            raise HttpError(503, "no broker is given: start with --broker kafka://HOST:PORT")
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise HttpError(415, "send JSON, with Content-Type: application/json")
        topic = self._topic(name)
        records = split(await _body(request))
        for number, record in enumerate(records):
            found = problem(record.columns, topic.fields) if topic is not None else None
            if found:
                raise HttpError(400, f"record {number}: {found}" if len(records) > 1 else found)
        key = request.query_params.get("key")
        payload = [(_key(record, topic, key), record.text.encode()) for record in records]
        try:
            places = await self._broker.send(name, payload)
        except UnknownTopic as error:
            if topic is not None:
                text = f"the topic {name} is not there yet: `headwater run` makes it when it starts"
                raise HttpError(503, text, {"Retry-After": "1"}) from None
            raise HttpError(404, str(error)) from None
        except RecordTooLarge as error:
            raise HttpError(413, str(error)) from None
        except BrokerAway as error:
            raise HttpError(503, str(error), {"Retry-After": "1"}) from None
        answer = [{"partition": partition, "offset": offset} for partition, offset in places]
        return JSONResponse({"topic": name, "records": answer})

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


def _key(record: Record, topic: Topic | None, given: str | None) -> bytes | None:
    if given is not None:
        return given.encode()
    if topic is None or not topic.key:
        return None
    return encode([record.columns.get(column) for column in topic.key]).encode()


async def _body(request: Request) -> bytes:
    too_large = HttpError(413, f"a body is at most {MAX_BODY_BYTES} bytes: send fewer records at once")
    if int(request.headers.get("content-length", "0")) > MAX_BODY_BYTES:
        raise too_large
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise too_large
    return bytes(body)
