"""Workers by themselves and in groups: tries, pauses, what a failure ends, when they are ready."""

from __future__ import annotations

import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path

import pytest

from headwater.core.errors import HeadwaterError
from headwater.testing.process import free_port
from headwater.workers.figures import Figure, exposition
from headwater.workers.group import Group
from headwater.workers.metrics import serve_metrics
from headwater.workers.worker import Again, Pauses, Progress, Worker

QUICK = Pauses(first=0.01, longest=0.04)


class Scripted(Worker[Progress]):
    """Does one step after the other; without any more it is ready, and idles until it is stopped."""

    def __init__(self, *steps: Callable[[Scripted], None], pauses: Pauses = QUICK) -> None:
        self.said: list[str] = []
        super().__init__(Progress(), pauses=pauses, say=self.said.append)
        self.steps = list(steps)
        self.closed_in = ""

    def run(self, *, until_end: bool = False, ready: Callable[[], None] = lambda: None) -> None:
        def attempt() -> None:
            while self.steps:
                self.steps.pop(0)(self)
            self.progress.state = "working"
            ready()
            self._drained = until_end
            while not self._stopping and not until_end:
                time.sleep(0.005)

        self._repeat(attempt)

    def close(self) -> None:
        self.closed_in = threading.current_thread().name


def fails(error: BaseException) -> Callable[[Scripted], None]:
    def step(worker: Scripted) -> None:
        raise error

    return step


def commits(worker: Scripted) -> None:
    worker.progress.commits += 1


def test_pauses_grow_and_are_short_again_once_something_was_done() -> None:
    away = fails(Again("away"))
    worker = Scripted(away, away, away, away, commits, away)
    worker.run(until_end=True)
    pauses = ["0.01", "0.02", "0.04", "0.04", "0.01"]
    assert worker.said == [f"away; trying again in {pause} s" for pause in pauses]
    assert (worker.progress.retries, worker.progress.state) == (5, "stopped")


def test_what_needs_somebody_has_the_longest_pause() -> None:
    worker = Scripted(fails(Again("wrong password", needs_somebody=True)))
    worker.run(until_end=True)
    assert worker.said == ["wrong password; trying again in 0.04 s"]


def test_a_pause_ends_when_the_worker_is_stopped() -> None:
    worker = Scripted(fails(Again("away")), pauses=Pauses(60, 60))
    thread = threading.Thread(target=worker.run)
    thread.start()
    while worker.progress.state != "waiting":
        time.sleep(0.005)
    worker.stop()
    thread.join(5)
    assert not thread.is_alive()


def test_a_group_is_ready_once_each_works_or_waits() -> None:
    workers = {"a": Scripted(), "b": Scripted(fails(Again("away")), pauses=Pauses(60, 60))}
    group = Group(workers, kind="test", one_for_all=True)
    told: list[dict[str, str]] = []

    def ready() -> None:
        told.append({name: progress.state for name, progress in group.progress.items()})
        group.stop()

    group.start()
    group.wait(ready=ready)
    assert told == [{"a": "working", "b": "waiting"}]
    assert [worker.closed_in for worker in workers.values()] == ["test-a", "test-b"]


def test_workers_that_were_too_quick_are_ready_in_the_end() -> None:
    group = Group({"a": Scripted()}, kind="test", one_for_all=True)
    told: list[str] = []
    group.start(until_end=True)
    for thread in group._threads:
        thread.join(5)
    group.wait(ready=lambda: told.append("ready"))
    assert told == ["ready"]


@pytest.mark.parametrize("one_for_all", [True, False])
def test_what_one_cannot_go_on_after(one_for_all: bool) -> None:
    """It ends all of them, or only itself; either way it is raised in the end."""
    other = Scripted()
    failing = Scripted(fails(HeadwaterError("gone")))
    group = Group({"failing": failing, "other": other}, kind="test", one_for_all=one_for_all)
    group.start()
    looks: list[bool] = []

    def tick() -> None:
        looks.append(group._threads[1].is_alive())
        if len(looks) == 10:
            group.stop()

    with pytest.raises(HeadwaterError, match="gone"):
        group.wait(ready=lambda: pytest.fail("not ready"), tick=tick)
    assert (len(looks) >= 10) is not one_for_all


def test_a_defect_ends_all_and_is_what_is_raised() -> None:
    began = threading.Event()

    def defect(worker: Scripted) -> None:
        assert began.wait(5)
        raise ZeroDivisionError

    def gone(worker: Scripted) -> None:
        began.set()
        raise HeadwaterError("gone")

    group = Group(
        {"a": Scripted(gone), "b": Scripted(defect), "c": Scripted()}, kind="test", one_for_all=False
    )
    group.start()
    with pytest.raises(ZeroDivisionError):
        group.wait(ready=lambda: pytest.fail("not ready"))


def test_figures_and_health_over_http() -> None:
    progress = {"a": Progress("working", commits=3), "b": Progress("waiting", problem="away")}
    figures: list[Figure[Progress]] = [Figure("done_total", "counter", "Commits.", lambda each: each.commits)]
    address = "127.0.0.1", free_port()
    server = serve_metrics(address, progress, lambda: exposition("worker", figures, progress))

    def get(path: str) -> tuple[int, str]:
        connection = HTTPConnection(*address, timeout=5)
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()
        return answer.status, body

    try:
        status, body = get("/metrics")
        assert (status, body.splitlines()[-2:]) == (
            200,
            ['done_total{worker="a"} 3', 'done_total{worker="b"} 0'],
        )
        assert get("/health") == (503, "away\n")
        progress["b"] = Progress("working")
        assert get("/health") == (200, "ok\n")
        assert get("/")[0] == 404
    finally:
        server.shutdown()
        server.server_close()


def test_a_second_signal_does_not_wait_for_a_broker_that_does_not_answer(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "shop.db") as shop:
        shop.execute("CREATE TABLE users (id INTEGER PRIMARY KEY)")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        broker = f"kafka://127.0.0.1:{silent.getsockname()[1]}"
        command = [
            sys.executable,
            "-m",
            "headwater.cli",
            "capture",
            "run",
            f"sqlite:///{tmp_path}/shop.db#users",
        ]
        process = subprocess.Popen([*command, f"--broker={broker}"], stderr=subprocess.DEVNULL)
        try:
            connection, _ = silent.accept()
            with connection:
                while process.poll() is None:
                    process.send_signal(signal.SIGINT)
                    time.sleep(0.1)
        finally:
            process.kill()
    assert process.wait() == -signal.SIGINT
