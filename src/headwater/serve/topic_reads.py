"""`GET /topics/NAME/PARTITION?offset=N`: the records of a partition, for who has HTTP and no client of Kafka.

Whoever reads keeps the place: an answer says where the next one goes on, and with `wait=` it is held back until there
is something. A connection to the broker, and a thread, belong to each request that is under way; so many are served at
once, and more are asked to come again.
"""

from __future__ import annotations

import asyncio
import json
import time
from base64 import b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headwater.app import App, Stream, Table, Topic
from headwater.client import EARLIEST, LATEST, BrokerError, ClientError, Cluster
from headwater.client.errors import UnknownTopic
from headwater.client.fetch import Fetched
from headwater.client.reading import committed_records, following, read_from
from headwater.core.errors import ErrorCode
from headwater.core.urls import KafkaUrl
from headwater.record.records import Record
from headwater.serve.errors import HttpError
from headwater.serve.parameters import count

__all__ = ["TopicReads"]

MAX_RECORDS = 1000
MAX_WAIT_SECONDS = 30
_RECORDS = 100
_BYTES = 1024 * 1024
_AT_ONCE = 16
_ANSWER_SECONDS = 5.0
_POLL_MS = 500


class Page(NamedTuple):
    """What a read has found."""

    start: int
    end: int
    following: int
    records: list[Record]


class TopicReads:
    """The handler of `/topics/NAME/PARTITION`."""

    def __init__(self, url: KafkaUrl | None, app: App | None, secret: frozenset[str] = frozenset()) -> None:
        self._url = url
        self._app = app
        self._secret = secret
        self._idle: list[Cluster] = []
        self._under_way = 0
        self._closed = False
        self._workers = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="topic-reads")

    def routes(self) -> list[Route]:
        """Return what is served."""
        return [Route("/topics/{topic}/{partition:int}", self.get, methods=["GET"])]

    def close(self) -> None:
        """Hang up."""
        self._closed = True
        self._workers.shutdown(wait=False, cancel_futures=True)
        while self._idle:
            self._idle.pop().close()

    async def get(self, request: Request) -> Response:
        """Answer with committed records from an offset on."""
        topic, partition = request.path_params["topic"], request.path_params["partition"]
        self._check(topic)
        given = request.query_params
        offset = _offset(given)
        limit = max(1, count(given, "limit", _RECORDS, most=MAX_RECORDS))
        wait = count(given, "wait", 0, most=MAX_WAIT_SECONDS)
        page = await self._apart(lambda cluster: self._read(cluster, topic, partition, offset, limit, wait))
        text = ",".join(map(_as_json, page.records))
        head = json.dumps({"topic": topic, "partition": partition, "start": page.start, "end": page.end})
        body = f'{head[:-1]}, "next": {page.following}, "records": [{text}]}}'
        return Response(body, media_type="application/json", headers={"Cache-Control": "no-store"})

    def _check(self, topic: str) -> None:
        if self._url is None:
            raise HttpError(503, "no broker is given: start with --broker kafka://HOST:PORT")
        if topic.startswith("__") or topic in self._secret:
            raise HttpError(404, f"the topic {topic} is not for reading here")
        if self._app is not None:
            kinds = (Topic, Table, Stream)
            names = [each.name for each in self._app.definitions.values() if isinstance(each, kinds)]
            if topic not in (*names, self._app.dead_letters):
                raise HttpError(
                    404, f"the application has no topic {topic}: it has {', '.join(sorted(names))}"
                )

    async def _apart(self, work: Callable[[Cluster], Page]) -> Page:
        if self._under_way >= _AT_ONCE:
            raise HttpError(503, "too many read topics at once: try again", {"Retry-After": "1"})
        self._under_way += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._workers, self._with_cluster, work)
        finally:
            self._under_way -= 1

    def _with_cluster(self, work: Callable[[Cluster], Page]) -> Page:
        assert self._url is not None, "it was looked at"
        try:
            cluster = self._idle.pop()
        except IndexError:
            cluster = Cluster(self._url, "headwater-serve", deadline_seconds=_ANSWER_SECONDS)
        try:
            return work(cluster)
        except UnknownTopic as error:
            raise HttpError(404, f"{error}") from None
        except ClientError as error:
            raise HttpError(503, f"{error}", {"Retry-After": "1"}) from None
        finally:
            cluster.forget()  # a topic may be deleted, and made again
            if self._closed:
                cluster.close()
            else:
                self._idle.append(cluster)

    def _read(self, cluster: Cluster, topic: str, partition: int, offset: int, limit: int, wait: int) -> Page:
        position = offset
        if offset in (EARLIEST, LATEST):
            [position] = cluster.offsets(topic, {partition: offset}).values()
        deadline = time.monotonic() + wait
        while True:
            left_ms = max(0, round(1000 * (deadline - time.monotonic())))
            fetched = self._fetch(cluster, topic, partition, position, min(left_ms, _POLL_MS))
            found = [record for record, _ in committed_records(fetched, position)]
            behind = following(fetched, position)
            if found or self._closed or (behind == position and not left_ms):
                position = found[limit].offset if len(found) > limit else behind
                start, end = fetched.log_start_offset, fetched.last_stable_offset
                return Page(start, end, position, found[:limit])
            position = behind

    @staticmethod
    def _fetch(cluster: Cluster, topic: str, partition: int, position: int, wait_ms: int) -> Fetched:
        def attempt() -> Fetched:
            return read_from(cluster, topic, partition, position, max_bytes=_BYTES, max_wait_ms=wait_ms)

        try:
            return cluster.retrying(attempt)
        except BrokerError as error:
            if error.code != ErrorCode.offset_out_of_range:
                raise
            start, end = (
                cluster.offsets(topic, {partition: where})[partition] for where in (EARLIEST, LATEST)
            )
            raise HttpError(
                416, f"{topic}-{partition} holds the offsets {start} to {end}, and no {position}"
            ) from None


def _as_json(record: Record) -> str:
    """Return a record as JSON: its value as it is where that is JSON, and as text where it is not."""
    said: dict[str, Any] = {"offset": record.offset, "timestamp": record.timestamp}
    said |= _text("key", record.key)
    if record.headers:
        said["headers"] = [{"name": name, **_text("value", value)} for name, value in record.headers]
    value = record.value
    try:
        text = "null" if value is None else value.decode()
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return json.dumps(said | _text("value", value), ensure_ascii=False)
    return f'{json.dumps(said, ensure_ascii=False)[:-1]}, "value": {text.strip()}}}'


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _text(name: str, value: bytes | None) -> dict[str, str | None]:
    try:
        return {name: None if value is None else value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(value or b"").decode()}


def _offset(given: QueryParams) -> int:
    named = {"earliest": EARLIEST, "latest": LATEST}.get(given.get("offset", "earliest"))
    return count(given, "offset", 0, most=2**62, also=", earliest or latest") if named is None else named
