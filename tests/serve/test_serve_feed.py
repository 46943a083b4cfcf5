"""Event streams: rows first, then changes, resumed at will, with nothing missed and nothing repeated."""

from __future__ import annotations

import json
import random
import tempfile
import threading
import time
from itertools import islice

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.views import Change, ViewDefinition, ViewStore, open_store

from .serve_helpers import Event, Served, events, served

END = "end"
STREAM = {"Accept": "text/event-stream"}


def row(**columns: object) -> str:
    return json.dumps(columns)


def test_rows_come_first_then_changes(server: Served, store: ViewStore) -> None:
    with server.client.stream("GET", "/views/sales/changes", headers=STREAM) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        stream = events(answer)
        first = list(islice(stream, 6))
        assert [event.name for event in first] == ["start", "row", "row", "row", "row", "ready"]
        assert first[1] == Event("row", None, {"key": "DE", "row": {"country": "DE", "revenue": 3}})
        assert first[-1].id == f"{store.identity}-sales-4"
        store.commit("q", 1, "sales", [Change("DE", None)])
        assert next(stream) == Event("change", f"{store.identity}-sales-5", {"key": "DE", "row": None})


def test_a_stream_goes_on_behind_its_last_event(server: Served, store: ViewStore) -> None:
    store.commit("q", 1, "sales", [Change(f"k{n}", row(n=n)) for n in range(5)])
    for headers, query in (
        ({"Last-Event-ID": f"{store.identity}-sales-7"}, ""),
        ({}, f"?since={store.identity}-sales-7"),
    ):
        with server.client.stream("GET", f"/views/sales/changes{query}", headers=STREAM | headers) as answer:
            found = list(islice(events(answer), 2))
        assert [event.id for event in found] == [f"{store.identity}-sales-8", f"{store.identity}-sales-9"]


def test_a_stream_whose_last_event_is_gone_starts_over(server: Served, store: ViewStore) -> None:
    with server.client.stream(
        "GET", "/views/sales/changes", headers=STREAM | {"Last-Event-ID": "0123456789ab-7"}
    ) as answer:
        assert next(events(answer)).name == "start"
    gone = server.client.get("/views/sales/changes?since=0123456789ab-7", headers=STREAM)
    assert gone.status_code == 410


def test_a_row_of_several_lines_is_one_event(server: Served, store: ViewStore) -> None:
    store.commit("q", 1, "sales", [Change("odd", '{\n"a":\r\n1}')])
    with server.client.stream(
        "GET", f"/views/sales/changes?since={store.identity}-sales-4", headers=STREAM
    ) as answer:
        assert next(events(answer)).data == {"key": "odd", "row": {"a": 1}}


class Follower:
    """Keeps a copy of a view by its event stream, and checks each step."""

    def __init__(self, server: Served, identity: str) -> None:
        self.server = server
        self.identity = identity
        self.copy: dict[str, str] = {}
        self.last: str | None = None
        self.position = -1

    def follow(self, count: int = 10**9) -> None:
        """Read some events, then cut the connection; the row named `end` is the last there is."""
        headers = STREAM | ({"Last-Event-ID": self.last} if self.last else {})
        with httpx.stream(
            "GET", f"{self.server.url}/views/sales/changes", headers=headers, timeout=20, trust_env=False
        ) as answer:
            for event in events(answer):
                self._take(event)
                count -= 1
                if self.last and (count <= 0 or END in self.copy):
                    return

    def _take(self, event: Event) -> None:
        if event.name == "start":
            assert self.last is None, "a feed that reaches back far enough does not start over"
            self.copy = {}
            return
        if event.name == "change":
            key, found = event.data["key"], event.data["row"]
            number = int((event.id or "").rpartition("-")[2])
            assert number == self.position + 1, "nothing is missed and nothing is repeated"
            # A row deleted while the first pages were read was never seen here: its delete comes all the same.
            assert found is None or self.copy.get(key) != found
            self.copy.pop(key, None)
        if event.name in ("change", "row") and event.data["row"] is not None:
            self.copy[event.data["key"]] = event.data["row"]
        if event.id is not None:
            self.last, self.position = event.id, int(event.id.rpartition("-")[2])


@settings(max_examples=4)
@given(seed=st.integers(0, 10**6), cuts=st.lists(st.integers(1, 400), min_size=1, max_size=4))
@pytest.mark.timeout(300)
def test_followers_of_a_busy_view_see_each_change_once(seed: int, cuts: list[int]) -> None:
    rng = random.Random(seed)
    with (
        tempfile.TemporaryDirectory() as directory,
        open_store(f"sqlite:///{directory}/views.db") as store,
        open_store(f"sqlite:///{directory}/views.db") as writer,
        served(store) as server,
    ):
        store.define(ViewDefinition("sales", ("k",)))
        # More rows than a page, so that commits come between the pages of the first rows.
        writer.commit("q", 0, "sales", [Change(f"{n:04}", row(n=0)) for n in range(2500)])

        def write() -> None:
            for epoch in range(1, 25):
                keys = [f"{rng.randrange(2600):04}" for _ in range(rng.randrange(1, 60))]
                writer.commit(
                    "q", epoch, "sales", [Change(k, rng.choice([None, row(n=epoch)])) for k in keys]
                )
                time.sleep(rng.uniform(0, 0.01))
            writer.commit("q", 100, "sales", [Change(END, row(n=100))])

        thread = threading.Thread(target=write)
        thread.start()
        follower = Follower(server, store.identity)
        for cut in cuts:
            if END not in follower.copy:
                follower.follow(cut)
        thread.join()
        if END not in follower.copy:
            follower.follow()
        assert follower.position == store.token("sales")
        assert follower.copy == {r.key: json.loads(r.row) for r in store.rows("sales", limit=10_000)}


def test_streams_end_with_the_server(store: ViewStore) -> None:
    ended = threading.Event()

    def follow(url: str) -> None:
        with httpx.stream("GET", url, headers=STREAM, timeout=30, trust_env=False) as answer:
            stream = events(answer)
            next(stream)
            started.wait(10)
            list(stream)
        ended.set()

    started = threading.Barrier(3)
    with served(store) as server:
        threads = [
            threading.Thread(target=follow, args=(f"{server.url}{path}",))
            for path in ("/views/sales/changes", "/live")
        ]
        for thread in threads:
            thread.start()
        started.wait(10)
        began = time.monotonic()
    for thread in threads:
        thread.join(5)
    assert ended.is_set()
    assert time.monotonic() - began < 3
