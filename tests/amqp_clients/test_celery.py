"""Celery: a worker in its own process runs tasks, tries again, waits for countdowns and answers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, chain, group, signature
from celery.exceptions import TimeoutError as ResultTimeoutError
from kombu.pools import reset

from clients.brokers import unique
from headwater.testing.process import terminate

from .brokers import Broker

pytestmark = [pytest.mark.real, pytest.mark.filterwarnings("default")]

SECONDS = 30


@pytest.fixture(scope="module")
def app(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Celery]:
    """An application with a worker of two processes."""
    queue = unique("celery")
    log = tmp_path_factory.mktemp("celery") / "worker.log"
    environment = os.environ | {"TEST_BROKER": broker.url(), "TEST_QUEUE": queue}
    command = [sys.executable, "-m", "celery", "-A", "celery_app", "worker"]
    with log.open("wb") as output:
        worker = subprocess.Popen(
            [*command, "--concurrency=2", "--loglevel=INFO", f"--hostname={queue}@localhost"],
            env=environment,
            cwd=Path(__file__).parent,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    made = Celery("client", broker=broker.url(), backend="rpc://", set_as_current=False)
    made.conf.update(task_default_queue=queue, task_queue_max_priority=10, result_persistent=False)
    try:
        deadline = time.monotonic() + SECONDS
        while "ready." not in log.read_text(errors="replace"):
            assert worker.poll() is None, log.read_text(errors="replace")
            assert time.monotonic() < deadline, log.read_text(errors="replace")
            time.sleep(0.1)
        yield made
    finally:
        made.backend.result_consumer.stop()
        made.close()
        reset()
        terminate(worker, seconds=20)


def task(app: Celery, name: str, *arguments: Any, **options: Any) -> Any:
    """Return the signature of one of the worker's tasks."""
    return signature(f"celery_app.{name}", args=arguments, app=app, **options)


def test_a_task_answers(app: Celery) -> None:
    assert task(app, "add", 2, 3).delay().get(timeout=SECONDS) == 5


def test_many_tasks_answer(app: Celery) -> None:
    results = group(task(app, "add", each, each) for each in range(50)).apply_async()
    assert results.get(timeout=SECONDS) == [2 * each for each in range(50)]


def test_a_chain_hands_results_on(app: Celery) -> None:
    assert (
        chain(task(app, "add", 1, 1), task(app, "add", 10), task(app, "add", 100))
        .delay()
        .get(timeout=SECONDS)
        == 112
    )


def test_an_exception_comes_back(app: Celery) -> None:
    with pytest.raises(ValueError, match="no luck"):
        task(app, "fail").delay().get(timeout=SECONDS)


def test_a_task_is_tried_again(app: Celery) -> None:
    assert task(app, "at_third_try").delay().get(timeout=SECONDS) == 2


def test_a_countdown_delays(app: Celery) -> None:
    sent = time.time()
    ran = task(app, "now").apply_async(countdown=1.5).get(timeout=SECONDS)
    assert ran - sent >= 1.4


def test_an_expired_task_does_not_run(app: Celery) -> None:
    result = task(app, "now").apply_async(countdown=1, expires=0.2)
    with pytest.raises((ResultTimeoutError, Exception)) as ended:
        result.get(timeout=4)
    assert ended.type.__name__ in ("TimeoutError", "TaskRevokedError")


def test_the_worker_is_asked_and_told(app: Celery) -> None:
    """Remote control: a fanout exchange to the workers, and answers to a queue of the asker's own."""
    [(worker, answer)] = app.control.ping(timeout=5, limit=1)[0].items()
    assert answer == {"ok": "pong"}
    assert "celery_app.add" in app.control.inspect([worker], timeout=5).registered()[worker]


def test_the_task_of_a_process_that_dies_is_given_to_another(app: Celery, tmp_path: Path) -> None:
    assert task(app, "die_once", str(tmp_path / "died")).delay().get(timeout=SECONDS) is True
