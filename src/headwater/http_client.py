"""A client of `headwater serve`: queries, live feeds that resume by themselves, records and events.

    with HttpClient("http://127.0.0.1:8080") as client:
        for row in client.query("revenue", where={"country": "DE", "amount[gte]": 10}, order="-amount"):
            ...
        token = client.send("orders", {"order_id": "o1", "amount": 9.9}, idempotency_key="o1")
        client.get("revenue", "DE", wait=token)         # reads what it wrote
        for event in client.feed("revenue"):            # rows, then changes, for as long as you like
            ...

It needs nothing but the standard library, and is for one thread; a feed has a connection of its own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlencode, urlsplit

from headwater.core.errors import HeadwaterError
from headwater.views.keys import encode

__all__ = ["FeedEvent", "HttpClient", "Refused"]

_TRIES = 5
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0


class Refused(HeadwaterError):
    """A request that the server refuses, with its status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class FeedEvent:
    """What a feed tells.

    `start`: forget what you have. `row`: a row that is there. `ready`: that were all. `change`: what became of
    a row, None when it is deleted.
    """

    name: str
    key: str | None = None
    row: dict[str, Any] | None = None
    token: str | None = None


class HttpClient:
    """A connection to `headwater serve`."""

    def __init__(self, url: str, *, token: str | None = None, seconds: float = 40.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise HeadwaterError(f"{url} is no address of a server: write one like http://127.0.0.1:8080")
        self._parts = parts
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._seconds = seconds
        self._connection: HTTPConnection | None = None

    def query(
        self,
        view: str,
        *,
        where: Mapping[str, object] | None = None,
        order: str | None = None,
        limit: int | None = None,
        fields: Sequence[str] | None = None,
        wait: str | None = None,
        at: str | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Yield the rows of a view, page by page.

        A name in `where` is a column's, or one like `amount[gte]`; lists go with `[in]`.
        """
        options = {"order": order, "wait": wait, "at": at, "fields": ",".join(fields) if fields else None}
        size = min(limit, 1000) if limit is not None else 1000
        path: str | None = _path("/views", view, _parameters(where, limit=size, **options))
        left = limit
        while path is not None:
            page = self._json("GET", path)
            for each in page["rows"][:left]:
                yield each["row"]
            left = None if left is None else left - len(page["rows"])
            path = page["next"] if left is None or left > 0 else None

    def get(self, view: str, *key: object, wait: str | None = None) -> dict[str, Any] | None:
        """Return the row with a key, of as many values as the view has key columns; None where there is none."""
        path = f"/views/{quote(view, safe='')}/{quote(encode(key), safe='')}"
        try:
            found: dict[str, Any] = self._json(
                "GET", path + (f"?{urlencode({'wait': wait})}" if wait else "")
            )
        except Refused as refused:
            if refused.status == 404 and "has no row" in str(refused):
                return None
            raise
        return found["row"]  # type: ignore[no-any-return]

    def feed(
        self,
        view: str,
        *,
        where: Mapping[str, object] | None = None,
        fields: Sequence[str] | None = None,
        since: str | None = None,
        slow: str | None = None,
    ) -> Iterator[FeedEvent]:
        """Yield a view's rows and then its changes; a connection that is cut is resumed where it was.

        With `since`, the token of an event, it goes on behind that. What the server refuses is raised.
        """
        token, pause = since, _FIRST_PAUSE
        parameters = _parameters(where, fields=",".join(fields) if fields else None, slow=slow)
        while True:
            try:
                for event in self._events(_path("/views", view, parameters, "/changes"), token):
                    yield event
                    token, pause = event.token or token, _FIRST_PAUSE
            except (OSError, HTTPException):
                pass
            except Refused as refused:
                if refused.status not in (429, 502, 503):
                    raise
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def send(
        self,
        topic: str,
        records: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        key: str | None = None,
        idempotency_key: str | None = None,
    ) -> str:
        """Append a record, or several, and return the token to wait for in a read.

        With an idempotency key they are written once, so what is not answered is sent again.
        """
        headers = {"Content-Type": "application/json"}
        if idempotency_key is not None:
            headers["Idempotency-Key"] = idempotency_key
        path = _path("/topics", topic, [("key", key)] if key is not None else [])
        body = json.dumps(records, separators=(",", ":")).encode()
        answer = self._json("POST", path, body, headers, may_repeat=idempotency_key is not None)
        return str(answer["token"])

    def send_lines(self, topic: str, records: Iterable[Mapping[str, Any]]) -> str:
        """Append any number of records as they come, and return the token to wait for in a read."""
        lines = (json.dumps(record, separators=(",", ":")).encode() + b"\n" for record in records)
        headers = {"Content-Type": "application/x-ndjson"}
        return str(self._json("POST", _path("/topics", topic, []), lines, headers)["token"])

    def append(
        self,
        stream: str,
        events: Sequence[Mapping[str, Any]],
        *,
        expected: int | None = None,
        command_id: str | None = None,
    ) -> int:
        """Append events like {"type": …, "data": …} to STORE/STREAM, and return its version.

        `expected` is the version it has to have, 0 for a stream that is not there; another one is refused with 412.
        """
        headers = {"Content-Type": "application/json"}
        if expected is not None:
            headers |= {"If-Match": f'"{expected}"'} if expected else {"If-None-Match": "*"}
        if command_id is not None:
            headers["Idempotency-Key"] = command_id
        body = json.dumps(events).encode()
        path = f"/events/{quote(stream)}"
        return int(self._json("POST", path, body, headers, may_repeat=command_id is not None)["version"])

    def events(self, stream: str, *, after: int = 0) -> Iterator[dict[str, Any]]:
        """Yield the events of STORE/STREAM behind a version, oldest first."""
        while True:
            path = f"/events/{quote(stream)}?{urlencode({'after': after, 'limit': 1000})}"
            found = self._json("GET", path)["events"]
            yield from found
            if len(found) < 1000:
                return
            after = found[-1]["version"]

    def close(self) -> None:
        """Hang up."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _connect(self) -> HTTPConnection:
        kind = HTTPSConnection if self._parts.scheme == "https" else HTTPConnection
        return kind(self._parts.hostname or "", self._parts.port, timeout=self._seconds)

    def _json(
        self,
        method: str,
        path: str,
        body: bytes | Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        may_repeat: bool = False,
    ) -> dict[str, Any]:
        """Return an answer. What failed is asked again where that does no harm."""
        may_repeat = may_repeat or method == "GET"
        pause = _FIRST_PAUSE
        for last in range(1, _TRIES + 1):
            try:
                return self._once(method, path, body, headers or {})
            except (OSError, HTTPException) as error:
                self.close()
                if not may_repeat or last == _TRIES:
                    place = self._parts.netloc.rpartition("@")[2]
                    raise HeadwaterError(
                        f"{place} does not answer: {error or type(error).__name__}"
                    ) from error
            except Refused as refused:
                if not may_repeat or refused.status != 503 or last == _TRIES:
                    raise
            time.sleep(pause)
            pause *= 2
        raise AssertionError

    def _once(
        self, method: str, path: str, body: bytes | Iterable[bytes] | None, headers: Mapping[str, str]
    ) -> dict[str, Any]:
        if self._connection is None:
            self._connection = self._connect()
        base = self._parts.path.rstrip("/")
        self._connection.request(method, base + path, body, {**self._headers, **headers})
        answer = self._connection.getresponse()
        found: dict[str, Any] = _checked(answer, answer.read())
        return found

    def _events(self, path: str, token: str | None) -> Iterator[FeedEvent]:
        connection = self._connect()
        headers = {**self._headers, "Accept": "text/event-stream"}
        if token is not None:
            headers["Last-Event-ID"] = token  # which starts over by itself where the token is gone
        try:
            connection.request("GET", self._parts.path.rstrip("/") + path, headers=headers)
            answer = connection.getresponse()
            if answer.status != 200:
                _checked(answer, answer.read())
            yield from _parsed(answer)
        finally:
            connection.close()


def _parsed(answer: HTTPResponse) -> Iterator[FeedEvent]:
    fields: dict[str, str] = {}
    while line := answer.readline():
        text = line.decode().rstrip("\n")
        if text:
            name, _, value = text.partition(": ")
            fields[name] = value
            continue
        data = json.loads(fields.get("data", "{}"))
        if fields.get("event") == "cut":
            raise Refused(429, data["error"])
        if "event" in fields:
            yield FeedEvent(fields["event"], data.get("key"), data.get("row"), fields.get("id"))
        fields = {}


def _checked(answer: HTTPResponse, body: bytes) -> Any:
    try:
        document = json.loads(body)
    except ValueError:
        document = {}
    if answer.status >= 400:
        text = document.get("error") if isinstance(document, dict) else None
        raise Refused(answer.status, text or f"the server answered {answer.status} {answer.reason}")
    return document


def _parameters(where: Mapping[str, object] | None, **options: object) -> list[tuple[str, str]]:
    found = [(name, str(value)) for name, value in options.items() if value is not None]
    for column, value in (where or {}).items():
        if isinstance(value, list | tuple):
            value = ",".join(_text(each).replace(",", "\\,") for each in value)
        found.append((column, _text(value)))
    return found


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _path(root: str, name: str, parameters: Sequence[tuple[str, str]], behind: str = "") -> str:
    return f"{root}/{quote(name, safe='')}{behind}" + (f"?{urlencode(parameters)}" if parameters else "")
