"""Projections: rows by a function over a store, kept up to date, rebuilt while the old ones serve."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import closing
from typing import Any

import pytest

from headwater.events import BadEvent, Event, NewEvent, Projection, StaleProjection, Upcasters
from headwater.events.projection_file import ProjectionFile

from .stores import Place, deposited

pytestmark = pytest.mark.real

Rows = MutableMapping[str, Any]


def balances(event: Event, rows: Rows) -> None:
    rows[event.stream] = rows.get(event.stream, 0) + event.data["amount"]


def test_rows_follow_the_events_and_are_still_there_after_a_restart(place: Place) -> None:
    with place.open(partitions=3) as store:
        store.append("ann", [deposited(1), deposited(2)])
        store.append("bob", deposited(5))
        with closing(Projection(store, balances, directory=place.directory)) as projection:
            assert projection.rows() == {}
            assert projection.catch_up() == 3
            assert projection.rows() == {"ann": 3, "bob": 5}
            assert projection.catch_up() == 0
            store.append("ann", deposited(4))
        with closing(Projection(store, balances, directory=place.directory)) as projection:
            assert projection.catch_up() == 1
            assert (projection["ann"], projection.get("eve"), projection.get("eve", 0)) == (7, None, 0)
            with pytest.raises(KeyError):
                projection["eve"]


def test_a_projection_follows_in_a_thread(place: Place) -> None:
    with place.open() as store, closing(Projection(store, balances, directory=place.directory)) as projection:
        stop = threading.Event()
        thread = threading.Thread(target=projection.follow, args=(stop,))
        thread.start()
        try:
            store.append("ann", deposited(3))
            deadline = time.monotonic() + 20
            while projection.get("ann") != 3:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        finally:
            stop.set()
            thread.join(20)
        assert not thread.is_alive()


def test_old_events_come_in_their_newest_form(place: Place) -> None:
    with place.open() as store:
        store.append("ann", deposited(1))
    upcasters = Upcasters()

    @upcasters.add("Deposited", schema=1)
    def in_cents(data: dict[str, Any]) -> dict[str, Any]:
        return {"cents": data["amount"] * 100}

    def cents(event: Event, rows: Rows) -> None:
        rows[event.stream] = rows.get(event.stream, 0) + event.data["cents"]

    with place.open(upcasters=upcasters) as store:
        store.append("ann", NewEvent("Deposited", {"cents": 7}))
        assert [event.schema for event in store.read("ann")] == [1, 2]
        with closing(Projection(store, cents, directory=place.directory)) as projection:
            projection.catch_up()
            assert projection["ann"] == 107


def changed() -> Callable[[Event, Rows], None]:
    def balances(event: Event, rows: Rows) -> None:
        rows[event.stream] = rows.get(event.stream, 0) + 10 * event.data["amount"]

    return balances


def test_the_old_rows_serve_until_the_new_ones_have_caught_up(place: Place) -> None:
    with place.open(partitions=2) as store:
        futures = [store.submit(f"s{number % 3}", deposited(1)) for number in range(1500)]
        store.append("ann", deposited(1))
        for future in futures:
            future.result(60)
        old = Projection(store, balances, directory=place.directory)
        assert old.catch_up() == 1501
        seen: list[Any] = []
        told: list[tuple[int, int]] = []

        def look(done: int, total: int) -> None:
            seen.append(old.rows()["s0"])
            told.append((done, total))
            if len(told) == 1:  # what comes while the new rows are made is in them too
                store.append("s0", deposited(1))
                old.catch_up()

        new = Projection(store, changed(), directory=place.directory)
        stale = [new.is_stale]
        with pytest.raises(StaleProjection, match="rebuild it"):
            new.catch_up()
        new.rebuild(look)
        assert set(seen) <= {500, 501}
        assert told[-1][0] == told[-1][1] >= 1501
        assert [done for done, _ in told] == sorted(done for done, _ in told)
        assert new.rows() == {"ann": 10, "s0": 5010, "s1": 5000, "s2": 5000}
        assert [*stale, new.is_stale] == [True, False]
        assert old.rows()["s0"] == 5010  # both serve what is current
        with pytest.raises(StaleProjection):
            old.catch_up()
        old.close()
        new.close()


def test_a_function_that_fails_leaves_the_rows_as_they_were_and_names_the_event(place: Place) -> None:
    def fussy(event: Event, rows: Rows) -> None:
        rows[event.stream] = 1 // event.data["amount"]

    with place.open() as store, closing(Projection(store, fussy, directory=place.directory)) as projection:
        store.append("ann", deposited(1))
        projection.catch_up()
        store.append("ann", [deposited(5), deposited(0)])
        with pytest.raises(ZeroDivisionError) as failure:
            projection.catch_up()
        assert "at version 3 (Deposited) of the stream ann" in failure.value.__notes__[0]
        assert projection.rows() == {"ann": 1}


@pytest.fixture
def file(place: Place) -> Iterator[ProjectionFile]:
    with closing(ProjectionFile(place.directory / "rows.db")) as file:
        file.begin("code", served=True)
        yield file


def test_rows_are_a_mapping(file: ProjectionFile) -> None:
    with file.changing() as generation:
        rows = generation.rows
        rows["b"] = {"n": [1]}
        rows["a"] = None
        assert (list(rows), len(rows), rows["a"], rows["b"]) == (["a", "b"], 2, None, {"n": [1]})
        del rows["a"]
        assert "a" not in rows
        with pytest.raises(KeyError):
            del rows["a"]
        with pytest.raises(BadEvent, match="cannot be JSON"):
            rows["c"] = {1, 2}
        with pytest.raises(BadEvent, match="is text"):
            rows[1] = 2  # type: ignore[index]
    with pytest.raises(ZeroDivisionError), file.changing() as generation:
        generation.rows["b"] = 1 // 0
    with file.reading() as rows:
        assert dict(rows) == {"b": {"n": [1]}}


def test_a_generation_that_is_behind_is_not_served(file: ProjectionFile) -> None:
    with file.changing() as generation:
        generation.move(0, 5)
    number = file.begin("new", served=False)
    assert not file.serve(number)
    with file.changing(number) as generation:
        generation.move(0, 5)
    assert file.serve(number)
    assert file.served() == (number, "new")
