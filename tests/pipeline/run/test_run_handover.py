"""A rebuilt view takes the place of the live one: who stands still when, and what a crash leaves."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from headwater.pipeline.handover import (
    Handover,
    Rebuilds,
    RunAlone,
    alone,
    finish,
    shadow_query,
    swap,
)
from headwater.pipeline.offsets import committed, merged, progress_offsets, reached
from headwater.views import Change, ViewDefinition, open_store

QUERY = "shop.sales"
SECONDS = 10.0


class Place:
    """A data directory with a live view, its checkpoint, and a shadow with its own."""

    def __init__(self, directory: Path) -> None:
        self.data = directory / "data"
        self.app = directory / "shop.py"
        self.app.write_text("# one")
        self.views = f"sqlite:///{directory}/views.db"
        self.store = open_store(self.views)
        self.store.define(ViewDefinition("sales", ("country",)))
        self.store.commit(QUERY, 9, "sales", [Change("DE", '{"n":1}')])
        shadow = self.store.shadow("sales", shadow_query(QUERY))
        self.store.commit(shadow_query(QUERY), 3, shadow, [Change("DE", '{"n":2}')])
        self.checkpoint("checkpoints", QUERY, "live")
        self.checkpoint("rebuild/checkpoints", shadow_query(QUERY), "built")

    def checkpoint(self, directory: str, query: str, text: str) -> None:
        path = self.data / directory / query / "offsets"
        path.mkdir(parents=True)
        (path / "0").write_text(text)
        path.parent.with_name(f"{query}.json").write_text(text)

    def live(self) -> tuple[str, str, int]:
        directory = self.data / "checkpoints"
        texts = [(directory / name).read_text() for name in (f"{QUERY}/offsets/0", f"{QUERY}.json")]
        return texts[0], texts[1], self.store.epoch(QUERY)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.store.close()


def test_rows_epoch_and_checkpoint_are_swapped(place: Place) -> None:
    assert swap(place.data, place.store, "sales", QUERY) == 1
    assert place.live() == ("built", "built", 3)
    assert place.store.rows("sales")[0].row == '{"n":2}'
    assert [path.name for path in (place.data / "rebuild").rglob("*")] == ["checkpoints"]


class Cut(Exception):
    """The process ends here."""


@pytest.mark.parametrize("where", ["before the store", "behind the store", "in the checkpoint"])
def test_a_swap_that_was_cut_short_is_finished_or_undone(
    place: Place, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def cut(*_: object, **__: object) -> int:
        raise Cut

    with monkeypatch.context() as patch:
        if where == "before the store":
            patch.setattr(place.store, "swap", cut)
        elif where == "behind the store":
            patch.setattr("headwater.pipeline.handover._move", cut)
        else:
            patch.setattr(Path, "rename", cut)
        with suppress(Cut):
            swap(place.data, place.store, "sales", QUERY)
    finish(place.data, place.views)
    finish(place.data, place.views)
    wanted = ("live", "live", 9) if where == "before the store" else ("built", "built", 3)
    assert place.live() == wanted


def test_where_nobody_runs_the_lock_is_held_meanwhile(place: Place) -> None:
    standing = Handover(place.data, QUERY).standstill(place.app, print)
    with standing, pytest.raises(RunAlone, match="busy"), alone(place.data / "run.lock", "busy"):
        raise AssertionError("two hold the lock")
    with alone(place.data / "run.lock", "busy"):
        pass


def test_whoever_runs_lets_the_query_stand_still_for_as_long_as_it_is_asked(place: Place) -> None:
    rebuilds = Rebuilds(place.data, place.app, place.views)
    handover = Handover(place.data, QUERY)
    inside, leave = threading.Event(), threading.Event()

    def rebuild() -> None:
        with alone(handover.lock, ""), handover.standstill(place.app, lambda _: None):
            inside.set()
            leave.wait(SECONDS)

    with alone(place.data / "run.lock", ""):
        assert not rebuilds.asked(QUERY)
        thread = threading.Thread(target=rebuild)
        thread.start()
        try:
            _await(lambda: rebuilds.asked(QUERY))
            assert not inside.wait(0.5)
            rebuilds.paused(QUERY)
            assert inside.wait(SECONDS)
            assert rebuilds.asked(QUERY)
        finally:
            leave.set()
            thread.join()
        assert not rebuilds.asked(QUERY)
        rebuilds.over(QUERY)
        assert not list((place.data / "rebuild").glob("*.answer"))


def test_an_application_that_changed_meanwhile_is_not_handed_a_view_it_cannot_go_on_with(
    place: Place,
) -> None:
    rebuilds = Rebuilds(place.data, place.app, place.views)
    place.app.write_text("# two")
    handover = Handover(place.data, QUERY)
    said: list[str] = []
    run_ends = threading.Event()

    def tell(what: str) -> None:
        assert not rebuilds.asked(QUERY)
        said.append(what)
        if "has changed since" in what:
            run_ends.set()

    def run() -> None:
        with alone(place.data / "run.lock", ""):
            run_ends.wait(SECONDS)

    running = threading.Thread(target=run)
    running.start()
    _await(lambda: (place.data / "run.lock").exists())
    time.sleep(0.1)
    with alone(handover.lock, ""), handover.standstill(place.app, tell):
        running.join()
    assert any("shop.py has changed since `headwater run` was started: stop it" in each for each in said)


def test_whoever_asked_and_died_is_not_waited_for(place: Place) -> None:
    rebuilds = Rebuilds(place.data, place.app, place.views)
    handover = Handover(place.data, QUERY)
    with alone(place.data / "run.lock", ""), suppress(Cut), alone(handover.lock, ""):

        def die(_: str) -> None:
            assert rebuilds.asked(QUERY)
            handover._ask.rename(handover._ask.with_suffix(".kept"))
            raise Cut

        with handover.standstill(place.app, die):
            pass
    handover._ask.with_suffix(".kept").rename(handover._ask)
    assert not rebuilds.asked(QUERY)


def test_offsets_of_a_checkpoint_are_those_of_its_last_committed_epoch(tmp_path: Path) -> None:
    assert committed(tmp_path, ["orders"]) == {}
    for epoch, offset in enumerate((5, 7, 9)):
        lines = [
            "v1",
            "{}",
            f'{{"offsets": {{"0": {offset}, "1": 1}}}}',
            f'{{"payments": {{"0": {offset}}}}}',
        ]
        (tmp_path / "offsets").mkdir(exist_ok=True)
        (tmp_path / "offsets" / str(epoch)).write_text("\n".join(lines))
    (tmp_path / "commits").mkdir()
    for epoch in (0, 1):
        (tmp_path / "commits" / str(epoch)).write_text("")
    assert committed(tmp_path, ["orders", "payments"]) == {"orders": {0: 7, 1: 1}, "payments": {0: 7}}


def test_a_topic_that_is_read_twice_is_as_far_as_the_slower() -> None:
    ends = [{"endOffset": '{"offsets": {"0": 4}}'}, {"endOffset": {"offsets": {"0": 3}}}, {"endOffset": None}]
    assert progress_offsets({"sources": ends}, ["orders", "orders", "users"]) == {"orders": {0: 3}}


def test_what_is_reached_and_what_is_farther() -> None:
    assert reached({"a": {0: 5}}, {"a": {0: 5}, "other": {0: 1}})
    assert not reached({"a": {0: 5}}, {"a": {0: 5, 1: 1}})
    assert merged({"a": {0: 5}}, {"a": {0: 3}}) == {"a": {0: 5}}


def _await(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_store_is_opened_only_where_something_is_left(tmp_path: Path) -> None:
    finish(tmp_path, "postgresql://nobody@127.0.0.1:1/nowhere")
