"""Several workers in one process, each in a thread: none waits for another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Generic

from headwater.core.errors import HeadwaterError
from headwater.workers.worker import P, Worker

__all__ = ["Group"]


class Group(Generic[P]):
    """Workers by name that are started together and end together."""

    def __init__(self, workers: Mapping[str, Worker[P]], *, kind: str, one_for_all: bool) -> None:
        """Take workers of a kind; with `one_for_all`, what one of them cannot go on after ends the others too."""
        self._workers = dict(workers)
        self._kind = kind
        self._one_for_all = one_for_all
        self._ready = {name: threading.Event() for name in workers}
        self._failure: BaseException | None = None
        self._threads: list[threading.Thread] = []

    @property
    def progress(self) -> Mapping[str, P]:
        """How far each is."""
        return {name: worker.progress for name, worker in self._workers.items()}

    def start(self, *, until_end: bool = False) -> None:
        """Start all of them."""
        for name in self._workers:
            thread = threading.Thread(target=self._run, args=(name, until_end), name=f"{self._kind}-{name}")
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Have all of them end soon; from any thread or signal handler."""
        for worker in self._workers.values():
            worker.stop()

    def wait(self, *, ready: Callable[[], None], tick: Callable[[], None] = lambda: None) -> None:
        """Wait until all have ended, and then raise what the first that failed has raised.

        `ready` is called once each does what it is there for, or has found that it must wait to; `tick` every now
        and then.
        """
        told = False
        while any(thread.is_alive() for thread in self._threads):
            if not told and self._failure is None and all(map(self._is_settled, self._workers)):
                told = True
                ready()
            tick()
            time.sleep(0.05)
        if self._failure is not None:
            raise self._failure
        if not told:  # all were too quick for a look in between
            ready()

    def _is_settled(self, name: str) -> bool:
        return self._ready[name].is_set() or self._workers[name].progress.retries > 0

    def _run(self, name: str, until_end: bool) -> None:
        worker = self._workers[name]
        try:
            worker.run(until_end=until_end, ready=self._ready[name].set)
        except BaseException as error:
            # A defect has to be seen by whoever supervises the process, whatever the others could still do.
            is_defect = not isinstance(error, HeadwaterError)
            if is_defect or self._failure is None:
                self._failure = error
            if is_defect or self._one_for_all:
                self.stop()
        finally:
            worker.close()
