"""Work that one thread does until it is told to stop, or has nothing more to do.

What may be over in a moment is tried again after pauses that grow, and are short again once something was done.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Again", "Pauses", "Progress", "Worker"]


@dataclass(frozen=True)
class Pauses:
    """How long to wait before another try, in seconds."""

    first: float = 0.5
    longest: float = 30.0


@dataclass
class Progress:
    """How far a worker is, as far as it is the same for all of them."""

    state: str = "starting"
    """What it does: `waiting` before another try, `stopped` in the end, and between them what its kind of work has."""
    commits: int = 0
    retries: int = 0
    problem: str = ""
    """Why it waits."""


P = TypeVar("P", bound=Progress)


class Again(Exception):
    """Raised by an attempt that failed, and is to be made again after a pause."""

    def __init__(self, problem: str, *, needs_somebody: bool = False) -> None:
        super().__init__(problem)
        self.needs_somebody = needs_somebody
        """Whether it will hardly be over in a moment, so that the longest pause is made."""


class Worker(ABC, Generic[P]):
    """One piece of work, and how far it is."""

    def __init__(
        self, progress: P, *, pauses: Pauses | None = None, say: Callable[[str], None] = lambda line: None
    ) -> None:
        self.progress = progress
        self._pauses = pauses or Pauses()
        self._say = say
        self._stopping = False
        self._drained = False
        """Set by an attempt after which there is nothing more to do."""

    @abstractmethod
    def run(self, *, until_end: bool = False, ready: Callable[[], None] = lambda: None) -> None:
        """Work until stopped, or with `until_end` until there is nothing more to do.

        Raises what needs somebody. `ready` is called once it does what it is there for.
        """

    def stop(self) -> None:
        """Have `run` return soon; from any thread or signal handler."""
        self._stopping = True

    def close(self) -> None:
        """Let go of what it holds, in the thread that ran it."""

    def _repeat(self, attempt: Callable[[], None]) -> None:
        """Attempt the work until stopped or drained; again after a pause where an attempt raised `Again`."""
        pause = self._pauses.first
        while not self._stopping and not self._drained:
            before = self.progress.commits
            try:
                attempt()
                continue
            except Again as again:
                problem = str(again)
                if again.needs_somebody:
                    pause = self._pauses.longest
                elif self.progress.commits > before:
                    pause = self._pauses.first
            self.progress.state, self.progress.problem = "waiting", problem
            self.progress.retries += 1
            self._say(f"{problem}; trying again in {pause:g} s")
            self._pause(pause)
            pause = min(2 * pause, self._pauses.longest)
        self.progress.state = "stopped"

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._stopping and time.monotonic() < until:
            time.sleep(0.05)
