"""Several captures in one process, each in a thread, until one cannot go on or all are told to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from headwater.capture.captures import Capture
from headwater.capture.runner import Progress, Runner
from headwater.core.urls import KafkaUrl

__all__ = ["RunningCaptures", "status_line"]


class RunningCaptures:
    """Captures that are started together and end together."""

    def __init__(
        self, captures: Sequence[Capture], broker: KafkaUrl, *, say: Callable[[str, str], None]
    ) -> None:
        """Make the runners; `say` gets the name of a capture and a line about it."""
        self._runners: dict[str, Runner] = {
            capture.name: capture.runner(broker, say=lambda line, name=capture.name: self._say(name, line))  # type: ignore[misc]
            for capture in captures
        }
        self._tell = say
        self._settled = {name: threading.Event() for name in self._runners}
        self._failure: BaseException | None = None
        self._threads: list[threading.Thread] = []

    @property
    def progress(self) -> Mapping[str, Progress]:
        """How far each is."""
        return {name: runner.progress for name, runner in self._runners.items()}

    def start(self, *, until_idle: bool = False) -> None:
        """Start all of them."""
        for name, runner in self._runners.items():
            thread = threading.Thread(
                target=self._run, args=(name, runner, until_idle), name=f"capture-{name}"
            )
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Have all of them end soon; from any thread or signal handler."""
        for runner in self._runners.values():
            runner.stop()

    def wait(self, *, ready: Callable[[], None], tick: Callable[[], None]) -> None:
        """Wait until all have ended, and raise what the first that failed raised.

        `ready` is called once each follows its database, or waits for it; `tick` every now and then.
        """
        told = False
        while any(thread.is_alive() for thread in self._threads):
            if not told and all(event.is_set() for event in self._settled.values()) and self._failure is None:
                told = True
                ready()
            tick()
            time.sleep(0.05)
        if self._failure is not None:
            raise self._failure
        if not told:
            ready()

    def _run(self, name: str, runner: Runner, until_idle: bool) -> None:
        try:
            runner.run(until_idle=until_idle, ready=self._settled[name].set)
        except BaseException as error:
            self._failure = self._failure or error
            self.stop()

    def _say(self, name: str, line: str) -> None:
        if self._runners[name].progress.state == "waiting":
            self._settled[name].set()
        self._tell(name, line)


def status_line(name: str, progress: Progress, rows_per_second: float) -> str:
    """Return how far a capture is, for people."""
    parts = [f"{name}: {progress.state}", f"{progress.rows:,} rows", f"{rows_per_second:,.0f} rows/s"]
    if progress.last_change_us:
        parts.append(f"lag {progress.lag_seconds():.2f} s")
    return ", ".join(parts)
