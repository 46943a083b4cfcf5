"""The application whose tasks a Celery worker runs; where its broker is, the environment says."""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import os
import time
from typing import Any

from celery import Celery, Task

QUEUE = os.environ.get("TEST_QUEUE", "celery")

app = Celery("celery_app", broker=os.environ.get("TEST_BROKER"), backend="rpc://")
app.conf.update(
    task_default_queue=QUEUE,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    result_expires=60,
    result_persistent=False,
    task_queue_max_priority=10,
)


@app.task
def add(x: int, y: int) -> int:
    """Return a sum."""
    return x + y


@app.task
def now() -> float:
    """Return when the task ran."""
    return time.time()


@app.task
def fail() -> None:
    """Raise."""
    raise ValueError("no luck")


@app.task(bind=True, max_retries=3)
def at_third_try(self: Any) -> int:
    """Raise twice, then return how often it was tried again."""
    if self.request.retries < 2:
        raise self.retry(exc=ValueError("not yet"), countdown=0.2)
    return int(self.request.retries)


@app.task(bind=True)
def die_once(self: Task, marker: str) -> bool:
    """Kill the process that runs this, the first time; tell whether the message was redelivered."""
    if not os.path.exists(marker):  # noqa: PTH110
        os.close(os.open(marker, os.O_CREAT))
        os.kill(os.getpid(), 9)
    return bool(self.request.delivery_info["redelivered"])
