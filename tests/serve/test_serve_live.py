"""Live feeds of queries: filters, cuts, slow readers and several readers at once."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from itertools import islice
from types import SimpleNamespace
from typing import Any
from unittest import mock

import httpx
import pytest
import websockets
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.http_client import FeedEvent, HttpClient, Refused
from headwater.serve import hub
from headwater.serve.entries import Entry, squashed
from headwater.serve.feed import Batch, Feed, Kind
from headwater.serve.hub import SharedFeed
from headwater.serve.query import Selection
from headwater.serve.tokens import write_token
from headwater.views import Change, Condition, StoredChange, ViewDefinition, ViewStore, open_store

from .serve_helpers import Served, events, served

STREAM = {"Accept": "text/event-stream"}
END = "end"


def row(**columns: object) -> str:
    return json.dumps(columns)


def keys(answer: Any) -> list[str]:
    return [each["key"] for each in answer["rows"]]


# The core, without a server


@given(
    changes=st.lists(
        st.tuples(st.sampled_from("abcd"), st.one_of(st.none(), st.integers(0, 9))), max_size=40
    ),
    known=st.integers(0, 40),
    start=st.integers(0, 40),
)
def test_a_shared_feed_tells_what_starts_and_stops_to_match(
    changes: list[tuple[str, int | None]], known: int, start: int
) -> None:
    """A reader that has the matching rows at any token has them at the end, and is told nothing needless."""
    state: dict[str, int] = {}
    matching: list[set[str]] = [set()]
    for key, value in changes:
        state.pop(key, None)
        if value is not None:
            state[key] = value
        matching.append({key for key, n in state.items() if n >= 5})
    begin, start = min(start, len(changes)), min(start, len(changes))
    known = max(begin, min(known, len(changes)))
    feed = SharedFeed(Selection(conditions=(Condition("n", "gte", ("5",)),)), begin)
    stored = [
        StoredChange(token, key, None if n is None else row(n=n)) for token, (key, n) in enumerate(changes, 1)
    ]
    feed.take([(change, None) for change in stored[begin:known]])
    # Rows that changed while the keys were read are not among them.
    changed = {change.key for change in stored[begin:known]}
    feed.know(matching[begin] - changed, known)
    feed.take([(change, None) for change in stored[known:]])
    found = feed.since(start)
    assert found is not None
    seen = set(matching[start])
    for each in found:
        if each.row is None:
            # Only of rows that changed while the feed began, nobody knows whether they matched.
            assert each.key in seen or each.token <= known
            seen.discard(each.key)
        else:
            seen.add(each.key)
        assert seen == matching[each.token]
    assert seen == matching[-1]


def test_a_feed_keeps_so_many_changes_and_says_where_they_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "KEEP", 10)
    feed = SharedFeed(Selection(), 0)
    for token in range(1, 22):
        feed.take([(StoredChange(token, "k", "{}"), None)])
    assert feed.since(10) is None
    found = feed.since(11)
    assert found is not None
    assert [each.token for each in found] == list(range(12, 22))
    feed.restart(30)
    assert (feed.since(21), feed.since(30)) == (None, [])


class SlowReader:
    """Takes what a feed gives, one batch for each time that it is let."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.may = asyncio.Semaphore(0)

    async def read(self, batches: AsyncIterator[Batch]) -> None:
        async for batch in batches:
            await self.may.acquire()
            if batch.kind is Kind.START:
                self.rows.clear()
            for each in batch.entries:
                self.rows.pop(each.key, None)
                if each.row is not None:
                    self.rows[each.key] = json.loads(each.row)["n"]
            if END in self.rows:
                return


async def read_slowly(store: ViewStore, steps: list[tuple[str, int | None] | str]) -> dict[str, int]:
    """Return the rows that a reader has, who reads when a step says so of what a feed has taken by then."""
    asked = Selection(conditions=(Condition("n", "gte", ("5",)),))
    shared = SharedFeed(asked, 0)
    shared.know([], 0)
    reader = SlowReader()

    async def feed(view: str, selection: Selection) -> SharedFeed:
        return shared

    def take() -> None:
        shared.take([(change, None) for change in store.changes("sales", shared.position, 1000)])

    parts: Any = SimpleNamespace(feed=feed, closed=False)
    follower = Feed(store, parts, parts, "sales", asked)
    task = asyncio.create_task(reader.read(await follower.follow(write_token(store, "sales", 0))))
    for epoch, step in enumerate([*steps, (END, 9), "take"], 1):
        match step:
            case "take":
                take()
            case "read":
                reader.may.release()
            case "miss":
                shared.restart(store.token("sales"))
            case (key, n):
                store.commit("q", epoch, "sales", [Change(key, None if n is None else row(n=n))])
        await asyncio.sleep(0.001 if step == "read" else 0)
    for _ in range(1000):
        reader.may.release()
    async with asyncio.timeout(20):
        await task
    return reader.rows


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.sampled_from("abc"), st.sampled_from([None, 0, 9])),
            st.sampled_from(["take", "read", "miss"]),
        ),
        max_size=60,
    )
)
def test_a_reader_that_falls_behind_again_and_again_misses_nothing(
    steps: list[tuple[str, int | None] | str],
) -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        open_store(f"sqlite:///{directory}/views.db") as store,
        mock.patch.object(hub, "KEEP", 1),
    ):
        store.define(ViewDefinition("sales", ("id",)))
        got = asyncio.run(read_slowly(store, steps))
        rows = {each.key: json.loads(each.row)["n"] for each in store.rows("sales")}
        assert got == {key: n for key, n in rows.items() if n >= 5}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=30), st.integers(0, 30))
def test_squashed_changes_can_be_cut_anywhere(changes: list[tuple[str, bool]], cut: int) -> None:
    entries = [Entry(n, key, "{}" if there else None) for n, (key, there) in enumerate(changes)]
    wanted = {each.key: each.row for each in entries}
    few = squashed(entries)
    assert [each.token for each in few] == sorted({key: n for n, (key, _) in enumerate(changes)}.values())
    got = {each.key: each.row for each in few[:cut]}
    last = few[:cut][-1].token if few[:cut] else -1
    got |= {each.key: each.row for each in squashed([each for each in entries if each.token > last])}
    assert got == wanted


# Queries


def test_ranges_sets_fields_and_ordered_pages(server: Served, store: ViewStore) -> None:
    assert keys(server.get("/views/sales", **{"revenue[gte]": "2", "revenue[lt]": "9"})) == ["DE", "IT"]
    assert keys(server.get("/views/sales", **{"country[in]": "DE,a/b,x\\,y"})) == ["DE", "a/b"]
    found = server.get("/views/sales", fields="revenue", order="-revenue", limit="3")
    assert found["rows"][0] == {"key": "a/b", "row": {"revenue": 9}}
    store.commit("q", 1, "sales", [Change("zz", row(country="zz", revenue=0))])
    following = server.get(found["next"])
    # The new row is not in the state that the first page belongs to: it is behind their token.
    assert (keys(following), following["token"]) == (["FR"], found["token"])
    assert server.get("/views/sales/DE", fields="country")["row"] == {"country": "DE"}


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("cursor=nonsense", "is no cursor for this query"),
        ("cursor=WzFd", "is no cursor for this query"),
        ("cursor=WyJ4IiwieSJd&order=revenue", "is no cursor for this query"),
        ("order=-", "order is the name of a column"),
        ("a%5Blt%5D=1&a%5Blt%5D=2", "a[lt] is given more than once"),
        ("&".join(f"c{n}=1" for n in range(30)), "at most 20 conditions"),
        ("a%22%5Blt%5D=1", "is no name of a column"),
        ("revenue%5Bge%5D=1", "revenue[ge] is no condition: there are [lt], [lte], [gt], [gte], [in]"),
    ],
)
def test_queries_that_do_not_fit(server: Served, query: str, text: str) -> None:
    answer = server.client.get(f"/views/sales?{query}")
    assert (answer.status_code, text in answer.json()["error"]) == (400, True)
    slow = server.client.get("/views/sales/changes?slow=x", headers=STREAM)
    assert (slow.status_code, "it is squash" in slow.json()["error"]) == (400, True)


# Feeds


def test_two_readers_with_different_filters(server: Served, store: ViewStore) -> None:
    with (
        server.client.stream("GET", "/views/sales/changes?revenue[gte]=3", headers=STREAM) as large,
        server.client.stream(
            "GET", "/views/sales/changes?revenue[lt]=3&fields=country", headers=STREAM
        ) as small,
    ):
        larges, smalls = events(large), events(small)
        assert [event.data.get("key") for event in islice(larges, 4)] == [None, "DE", "a/b", None]
        assert [event.data.get("key") for event in islice(smalls, 4)] == [None, "FR", "IT", None]
        store.commit(
            "q", 1, "sales", [Change("DE", row(country="DE", revenue=1)), Change("XX", row(revenue=4))]
        )
        store.commit("q", 2, "sales", [Change("a/b", None), Change("FR", row(country="FR", revenue=2))])
        assert [event.data for event in islice(larges, 3)] == [
            {"key": "DE", "row": None},
            {"key": "XX", "row": {"revenue": 4}},
            {"key": "a/b", "row": None},
        ]
        assert [event.data for event in islice(smalls, 2)] == [
            {"key": "DE", "row": {"country": "DE"}},
            {"key": "FR", "row": {"country": "FR"}},
        ]


def test_a_long_poll_of_a_query(server: Served, store: ViewStore) -> None:
    token = server.get("/views/sales")["token"]
    path = "/views/sales/changes?revenue[gte]=3"
    assert server.get(f"{path}&since={token}")["changes"] == []
    store.commit("q", 1, "sales", [Change("FR", row(revenue=0)), Change("DE", row(revenue=0))])
    found = server.get(f"{path}&since={token}")
    assert found["changes"] == [{"key": "DE", "row": None}]
    assert server.get(f"{path}&since={found['token']}")["changes"] == []


async def test_a_websocket_gets_the_same(server: Served, store: ViewStore) -> None:
    url = server.url.replace("http", "ws") + "/views/sales/live"
    async with websockets.connect(f"{url}?revenue[gte]=3") as socket:
        first = [json.loads(await socket.recv()) for _ in range(4)]
        assert [each["event"] for each in first] == ["start", "row", "row", "ready"]
        await asyncio.to_thread(store.commit, "q", 1, "sales", [Change("DE", None)])
        change = json.loads(await socket.recv())
        assert change == {"event": "change", "token": f"{store.identity}-sales-5", "key": "DE", "row": None}
    await asyncio.to_thread(store.commit, "q", 2, "sales", [Change("DE", row(revenue=7))])
    async with websockets.connect(f"{url}?revenue[gte]=3&since={change['token']}") as socket:
        assert json.loads(await socket.recv())["row"] == {"revenue": 7}
    async with websockets.connect(f"{url}?since=0123456789ab-3") as socket:
        assert json.loads(await socket.recv()) == {"event": "start"}
    for query, status in (("?order=x&slow=y", 400), ("?since=nonsense", 400)):
        with pytest.raises(websockets.InvalidStatus) as refused:
            await websockets.connect(url + query)
        assert refused.value.response.status_code == status
        assert "error" in json.loads(refused.value.response.body or b"")


class Model:
    """A copy of a query's rows, kept by what a feed says, with each step checked."""

    def __init__(self) -> None:
        self.copy: dict[str, Any] = {}
        self.token: str | None = None
        self.position = -1

    def take(self, event: FeedEvent) -> None:
        if event.name == "start":
            assert self.token is None, "a feed that reaches back far enough does not start over"
            self.copy = {}
        if event.name in ("row", "change") and event.key is not None:
            if event.row is None:
                self.copy.pop(event.key, None)
            else:
                assert event.row["n"] % 3 == 0 or event.row.get("end"), "only what is asked for comes"
                self.copy[event.key] = event.row
        if event.token is not None:
            position = int(event.token.rpartition("-")[2])
            assert position > self.position, "nothing is repeated"
            self.token, self.position = event.token, position


@contextmanager
def busy_view(seed: int) -> Iterator[tuple[Served, ViewStore, threading.Thread]]:
    rng = random.Random(seed)
    with (
        tempfile.TemporaryDirectory() as directory,
        open_store(f"sqlite:///{directory}/views.db") as store,
        open_store(f"sqlite:///{directory}/views.db") as writer,
        served(store) as server,
    ):
        store.define(ViewDefinition("sales", ("k",)))

        def changes(count: int) -> list[Change]:
            return [
                Change(
                    f"{rng.randrange(1500):04}",
                    rng.choice([None, *[row(n=n, three=n % 3 == 0) for n in range(5)]]),
                )
                for _ in range(count)
            ]

        writer.commit("q", 0, "sales", changes(1500))

        def write() -> None:
            for epoch in range(1, 25):
                writer.commit("q", epoch, "sales", changes(rng.randrange(1, 60)))
                time.sleep(rng.uniform(0, 0.01))
            writer.commit("q", 100, "sales", [Change(END, row(n=100, three=True, end=True))])

        yield server, store, threading.Thread(target=write)


@settings(max_examples=5)
@given(
    seed=st.integers(0, 10**6),
    cuts=st.lists(st.integers(1, 300), min_size=1, max_size=5),
    keep=st.sampled_from([5, 100, 20_000]),
)
@pytest.mark.timeout(300)
def test_a_query_followed_through_cuts_ends_as_the_view(seed: int, cuts: list[int], keep: int) -> None:
    """Also where a feed keeps so little that whoever resumes reads the store itself."""
    with mock.patch.object(hub, "KEEP", keep), busy_view(seed) as (server, store, writer):
        writer.start()
        model = Model()
        while END not in model.copy:
            left = cuts.pop() if cuts else 10**9
            with HttpClient(server.url, seconds=20) as client:
                for event in client.feed("sales", where={"three": True}, since=model.token):
                    model.take(event)
                    left -= 1
                    if END in model.copy or (model.token and left <= 0):
                        break
        writer.join()
        rows = store.rows("sales", limit=10_000)
        assert model.copy == {r.key: json.loads(r.row) for r in rows if json.loads(r.row)["three"]}


def test_the_client_resumes_by_itself_through_a_server_that_comes_and_goes(store: ViewStore) -> None:
    port = _free_port()
    found: list[FeedEvent] = []
    client = HttpClient(f"http://127.0.0.1:{port}", seconds=20)

    def follow() -> None:
        for event in client.feed("sales"):
            found.append(event)
            if event.key == END:
                return

    thread = threading.Thread(target=follow, daemon=True)
    with served(store, port=port):
        thread.start()
        _until(lambda: any(event.name == "ready" for event in found))
    store.commit("q", 1, "sales", [Change("DE", None), Change("XX", row(n=1))])
    with served(store, port=port):
        _until(lambda: found[-1].key == "XX")
        store.commit("q", 2, "sales", [Change(END, row(n=2))])
        thread.join(20)
    assert not thread.is_alive()
    assert [event.key for event in found if event.name == "change"] == ["DE", "XX", END]
    assert [event.name for event in found].count("start") == 1


@pytest.mark.real
@pytest.mark.parametrize("slow", ["squash", "cut"])
def test_a_reader_that_stops_reading_costs_nobody_anything(
    server: Served, store: ViewStore, slow: str
) -> None:
    host, _, port = server.url.removeprefix("http://").partition(":")
    with socket.socket() as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.connect((host, int(port)))
        head = f"GET /views/sales/changes?slow={slow} HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream"
        reader.sendall(f"{head}\r\n\r\n".encode())
        taken = b""
        while b"event: ready" not in taken:
            taken += reader.recv(4096)
        with server.client.stream("GET", "/views/sales/changes", headers=STREAM) as other:
            others = events(other)
            while next(others).name != "ready":
                pass
            wide = "x" * 2000
            for epoch in range(1, 41):
                changes = [Change(f"k{n}", row(n=epoch, wide=wide)) for n in range(100)]
                store.commit("q", epoch, "sales", changes)
                # Everything reaches the one who reads, while the other one does not.
                assert {next(others).data["row"]["n"] for _ in changes} == {epoch}
        time.sleep(1.2)
        store.commit("q", 50, "sales", [Change(END, row(n=0))])
        reader.settimeout(20)
        end = b"event: cut" if slow == "cut" else f'"key":"{END}"'.encode()
        while end not in taken[-4000:]:
            chunk = reader.recv(1 << 20)
            assert chunk, "the stream ended without a word"
            taken += chunk
    seen = taken.count(b"event: change")
    assert seen < 3000, "far fewer than were made"
    if slow == "squash":
        last = {}
        for line in taken.split(b"data: ")[1:]:
            data = json.loads(line.partition(b"\n")[0])
            last[data.get("key")] = data.get("row")
        assert {last[f"k{n}"]["n"] for n in range(100)} == {40}


def test_the_client_asks_and_is_refused(server: Served, store: ViewStore) -> None:
    with HttpClient(server.url) as client:
        assert [each["revenue"] for each in client.query("sales", order="-revenue")] == [9, 3, 2, 1]
        assert [each["revenue"] for each in client.query("sales", order="revenue", limit=3)] == [1, 2, 3]
        where = {"country[in]": ["DE", "a/b"], "revenue[lt]": 9}
        assert list(client.query("sales", where=where, fields=["country"])) == [{"country": "DE"}]
        assert client.get("sales", "a/b") == {"country": "a/b", "revenue": 9}
        assert client.get("sales", "nothing") is None
        for ask in (
            lambda: client.get("nothing", "x"),
            lambda: next(client.feed("nothing")),
            lambda: list(client.query("nothing")),
        ):
            with pytest.raises(Refused, match="there is no view named nothing") as refused:
                ask()
            assert refused.value.status == 404
        with pytest.raises(Refused, match="no broker is given"):
            client.send("orders", {"n": 1})


def test_readers_are_counted(server: Served, store: ViewStore) -> None:
    with server.client.stream("GET", "/views/sales/changes", headers=STREAM) as answer:
        stream = events(answer)  # which would hang up if nobody held it
        next(stream)
        text = httpx.get(f"{server.url}/metrics", trust_env=False).text
        assert "\nheadwater_live_readers 1\n" in text, text


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _until(true: Any, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)
