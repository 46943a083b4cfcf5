"""Waking those who wait for a view."""

from __future__ import annotations

import asyncio

import pytest

from headwater.serve import watch as watching
from headwater.serve.watch import Watch
from headwater.views import Change, ViewStore


def test_a_change_that_one_waiter_sees_first_wakes_the_others(
    store: ViewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The task that asks for everybody comes too late: whoever else looks has to tell.
    monkeypatch.setattr(watching, "_POLL_SECONDS", 60.0)

    async def run() -> bool:
        watch = Watch(store)
        since = store.token("sales")
        waiting = asyncio.create_task(watch.wait("sales", since, 20))
        await asyncio.sleep(0.1)
        store.commit("q", 1, "sales", [Change("ES", '{"country": "ES", "revenue": 1}')])
        other = asyncio.create_task(watch.wait("other", 0, 20))
        woken = await asyncio.wait_for(waiting, 10)
        await watch.close()
        assert await other is False
        return woken

    assert asyncio.run(run())


def test_a_watch_that_broke_begins_anew_with_the_next_who_waits(
    store: ViewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    version, asked = store.version, 0

    def breaks_once() -> int:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise RuntimeError("nobody expects this")
        return version()

    monkeypatch.setattr(store, "version", breaks_once)

    async def run() -> bool:
        watch = Watch(store)
        since = store.token("sales")
        assert await watch.wait("sales", since, 0.2) is False
        waiting = asyncio.create_task(watch.wait("sales", since, 20))
        await asyncio.sleep(0.1)
        store.commit("q", 1, "sales", [Change("ES", '{"country": "ES", "revenue": 1}')])
        woken = await asyncio.wait_for(waiting, 10)
        await watch.close()
        return woken

    assert asyncio.run(run())
