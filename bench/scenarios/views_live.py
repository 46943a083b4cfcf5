"""Views over HTTP: rows by key, and many readers of a live feed, beside a handler written by hand on the same store."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Self
from urllib.request import urlopen

from bench.brokers import Broker
from bench.figures import HAND, HEADWATER, Better, Figure, Floor, Limit
from bench.scenarios.base import Scale, Scenario
from bench.views_live import fill
from headwater.testing.process import free_port

READERS = 1_000
MANY = 10_000
CHANGES = 40
FEW_CHANGES = 5
READ_SECONDS = 10


class ViewsLive(Scenario):
    """A server on a SQLite store; readers and writer are processes of their own."""

    name = "views-live"
    figures = (
        Figure("view-http-reads", "view reads by key over HTTP", "requests/s", Better.HIGHER, peer=HAND),
        Figure(
            "live-p99",
            f"change to reader p99, {READERS:,} readers of a live query",
            "ms",
            Better.LOWER,
            (Limit(250.0, "ms"),),
            peer=HAND,
        ),
        Figure(
            "live-readers",
            "readers of one process that got every change",
            "readers",
            Better.HIGHER,
            (Floor(float(MANY), "readers"),),
            peer=HAND,
        ),
        Figure("live-many-p99", f"change to reader p99, {MANY:,} readers", "ms", Better.LOWER, peer=HAND),
    )
    sides: ClassVar[tuple[str, ...]] = (HAND, HEADWATER)

    def __init__(self, side: str = HEADWATER) -> None:
        self.side = side

    def on(self, side: str) -> Self:
        """Return the scenario for one side."""
        return type(self)(side)

    def run(self, broker: Broker, scratch: Path, scale: Scale) -> Mapping[str, float]:
        """Read rows, then let readers follow: a thousand, then ten thousand."""
        store = f"sqlite:///{scratch}/views.db"
        fill(store)
        with self._server(store) as url:
            [rate] = _child("reads", url, str(scale.of(READ_SECONDS)))
            p99, _ = _child("follow", url, store, str(READERS), str(scale.of(CHANGES)))
            many, complete = _child("follow", url, store, str(MANY), str(FEW_CHANGES))
        return {"view-http-reads": rate, "live-p99": p99, "live-readers": complete, "live-many-p99": many}

    @contextmanager
    def _server(self, store: str) -> Iterator[str]:
        port = free_port()
        command = [
            sys.executable,
            "-m",
            "headwater.cli",
            "serve",
            f"--views={store}",
            f"--http=127.0.0.1:{port}",
        ]
        if self.side == HAND:
            command = [sys.executable, "-m", "bench.views_live", "serve", store, str(port)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        url = f"http://127.0.0.1:{port}"
        try:
            _wait(f"{url}/views/sales/k0000", process)
            yield url
        finally:
            process.terminate()
            process.wait(30)


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            with urlopen(url, timeout=5):
                return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _child(*arguments: str) -> list[float]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.views_live", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=600,
    )
    return [float(each) for each in done.stdout.split()]
