"""What a runner makes one transaction of, what it does about errors, and what it tells."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from headwater.capture.change import Batch, Change, Column, Position, TableSchema
from headwater.capture.feed import Feed
from headwater.capture.metrics import exposition
from headwater.capture.publisher import Published, Publisher
from headwater.capture.runner import Limits, Progress, Runner
from headwater.capture.running import status_line
from headwater.capture.source import CaptureError, TryAgain
from headwater.client import AuthenticationFailed, Unreachable
from headwater.workers.worker import Pauses

TABLE = TableSchema("main", "t", (Column("id", "bigint", "INT"),), ("id",))
QUICK = Pauses(first=0.01, longest=0.04)


def batch(number: int, rows: int = 1) -> Batch:
    change = Change("c", TABLE, None, (b"%d" % number,), 1, None, {})
    return Batch([change] * rows, {"at": number})


class FakeSource:
    """Yields what it is given; an error among it is raised."""

    def __init__(self, *script: Batch | Exception | Callable[[], None]) -> None:
        self.script = script
        self.acknowledged: list[Position] = []
        self.followed: list[Position | None] = []
        self.closed = 0
        self.yielded = 0
        self.threads: set[int] = set()

    def describe(self) -> list[TableSchema]:
        return [TABLE]

    def follow(self, position: Position | None) -> Iterator[Batch]:
        self.threads.add(threading.get_ident())
        self.followed.append(position)
        last = position or {}
        for item in self.script:
            if isinstance(item, Exception):
                raise item
            if callable(item) and not isinstance(item, tuple):
                item()
                continue
            last = item.position
            self.yielded += 1
            yield item
        while True:
            time.sleep(0.01)
            yield Batch([], last)

    def acknowledge(self, position: Position) -> None:
        self.threads.add(threading.get_ident())
        self.acknowledged.append(position)

    def close(self) -> None:
        self.closed += 1


class FakePublisher:
    """Keeps what it is given; a commit takes as long as the test wants."""

    def __init__(
        self, *, committing: Callable[[], None] = lambda: None, start: Position | None = None
    ) -> None:
        self.committing = committing
        self.transactions: list[list[int]] = []
        self.published = Published()
        self.pending_bytes = 0
        self.moved = False
        self._start = start
        self._open: list[int] = []
        self._position: Position | None = None

    def __enter__(self) -> FakePublisher:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def open(self, tables: list[TableSchema]) -> Position | None:
        return self._start

    def add(self, batch: Batch) -> None:
        if batch.changes:
            self._open.append(batch.position["at"])
            self.published.rows += len(batch.changes)
        self.pending_bytes += 100 * len(batch.changes)
        self.moved = batch.position != self._position
        self._position = batch.position

    def commit(self) -> Position | None:
        self.committing()
        self.transactions.append(self._open)
        self._open, self.pending_bytes, self.moved = [], 0, False
        self.published.transactions += 1
        return self._position


def run(
    source: FakeSource, publisher: FakePublisher, *, limits: Limits | None = None
) -> tuple[Runner, list[str]]:
    said: list[str] = []
    runner = Runner(
        lambda: source, lambda: cast(Publisher, publisher), limits=limits, pauses=QUICK, say=said.append
    )
    runner.run(until_end=True)
    return runner, said


def _wait(event: threading.Event) -> None:
    assert event.wait(5)


def test_what_comes_during_a_commit_is_the_next_transaction() -> None:
    more = threading.Event()
    source = FakeSource(batch(1), lambda: _wait(more), batch(2), batch(3), batch(4))

    def committing() -> None:
        more.set()
        time.sleep(0.1)

    publisher = FakePublisher(committing=committing)
    run(source, publisher)
    assert [made for made in publisher.transactions if made] == [[1], [2, 3, 4]]


def test_a_transaction_ends_at_its_size() -> None:
    source = FakeSource(*(batch(number, rows=10) for number in range(6)))
    publisher = FakePublisher()
    run(source, publisher, limits=Limits(bytes=2000))
    assert max(len(made) for made in publisher.transactions) <= 2
    assert [number for made in publisher.transactions for number in made] == list(range(6))


def test_what_is_committed_is_acknowledged_by_the_sources_own_thread() -> None:
    source = FakeSource(batch(1), batch(2))
    run(source, FakePublisher())
    assert source.acknowledged[-1] == {"at": 2}
    assert len(source.threads) == 1
    assert threading.get_ident() not in source.threads
    assert source.closed == 1


def test_it_goes_on_from_the_position_that_is_kept() -> None:
    source = FakeSource()
    run(source, FakePublisher(start={"at": 7}))
    assert source.followed == [{"at": 7}]


def test_what_may_be_over_is_tried_again_with_growing_pauses() -> None:
    tries = [
        TryAgain("the database restarts"),
        Unreachable("no broker answers"),
        TryAgain("still"),
        TryAgain("x"),
    ]
    sources = [*(FakeSource(error) for error in tries), FakeSource(batch(1))]
    publisher = FakePublisher()
    said: list[str] = []
    left = iter(sources)
    runner = Runner(lambda: next(left), lambda: cast(Publisher, publisher), pauses=QUICK, say=said.append)
    runner.run(until_end=True)
    assert said == [
        "the database restarts; trying again in 0.01 s",
        "no broker answers; trying again in 0.02 s",
        "still; trying again in 0.04 s",
        "x; trying again in 0.04 s",
    ]
    assert publisher.transactions[0] == [1]
    assert (runner.progress.retries, runner.progress.rows) == (4, 1)
    assert all(source.closed for source in sources)


@pytest.mark.parametrize("error", [CaptureError("the slot is gone"), AuthenticationFailed("wrong password")])
def test_what_needs_somebody_ends_it(error: Exception) -> None:
    source = FakeSource(batch(1), error)
    with pytest.raises(CaptureError, match=str(error)):
        run(source, FakePublisher())
    assert source.closed == 1


def test_it_stops_when_it_is_told_to() -> None:
    source, publisher = FakeSource(batch(1)), FakePublisher()
    runner = Runner(lambda: source, lambda: cast(Publisher, publisher), pauses=QUICK)
    thread = threading.Thread(target=runner.run)
    thread.start()
    while not publisher.transactions:
        time.sleep(0.01)
    runner.stop()
    thread.join(5)
    assert not thread.is_alive()
    assert (source.closed, runner.progress.state) == (1, "stopped")


def test_a_feed_holds_no_more_than_it_may() -> None:
    large = Change("c", TABLE, None, (b"x" * 15_000,), 1, None, {})
    source = FakeSource(*(Batch([large] * 1000, {"at": number}) for number in range(10)))  # 15 MB each
    feed = Feed(source, None)
    try:
        time.sleep(0.2)
        assert source.yielded == 4  # three that fill its 32 MB, and one that waits
        taken = [feed.get(5) for _ in range(10)]
        assert [each.position["at"] for each in taken if each is not None] == list(range(10))
    finally:
        feed.stop()


def test_figures_for_people_and_for_prometheus() -> None:
    progress = Progress(state="streaming", rows=1500, last_change_us=1_000_000, committed_at=1.25)
    assert status_line("shop", progress, 100.0) == "shop: streaming, 1,500 rows, 100 rows/s, lag 0.25 s"
    page = exposition({"shop": progress}).decode()
    assert 'headwater_capture_rows_total{capture="shop"} 1500' in page
    assert 'headwater_capture_lag_seconds{capture="shop"} 0.25' in page
    assert 'headwater_capture_up{capture="shop"} 1' in page
