"""The stores of an application in one process, each in a thread: none waits for another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from headwater.app import App, Derived
from headwater.core.errors import HeadwaterError
from headwater.core.urls import KafkaUrl
from headwater.derived.follower import Follower, Progress
from headwater.derived.stores import open_store, stream_of

__all__ = ["RunningStores"]


class RunningStores:
    """Stores that are started together and end together."""

    def __init__(
        self,
        app: App,
        definitions: Sequence[Derived],
        data: Path,
        broker: KafkaUrl,
        *,
        say: Callable[[str, str], None],
    ) -> None:
        """Open the stores; `say` gets the name of a store and a line about it."""
        self._tell = say
        self._stores = {each.name: open_store(app, each, data) for each in definitions}
        self._followers = {
            each.name: Follower(
                each.name,
                stream_of(app, each),
                self._stores[each.name],
                broker,
                say=lambda line, name=each.name: self._say(name, line),  # type: ignore[misc]
            )
            for each in definitions
        }
        self._settled = {name: threading.Event() for name in self._followers}
        self._failure: BaseException | None = None
        self._threads: list[threading.Thread] = []

    @property
    def progress(self) -> Mapping[str, Progress]:
        """How far each is."""
        return {name: follower.progress for name, follower in self._followers.items()}

    def start(self, *, until_end: bool = False) -> None:
        """Start all of them."""
        for name, follower in self._followers.items():
            thread = threading.Thread(
                target=self._run, args=(name, follower, until_end), name=f"derived-{name}"
            )
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Have all of them end soon; from any thread or signal handler."""
        for follower in self._followers.values():
            follower.stop()

    def wait(self, *, ready: Callable[[], None], tick: Callable[[], None] = lambda: None) -> None:
        """Wait until all have ended, and then raise what the first that failed has raised.

        `ready` is called once each is as far as its topic, or waits for it.
        """
        told = False
        while any(thread.is_alive() for thread in self._threads):
            if not told and all(event.is_set() for event in self._settled.values()):
                told = True
                ready()
            tick()
            time.sleep(0.05)
        if self._failure is not None:
            raise self._failure
        if not told:  # all were too quick for a look in between
            ready()

    def _run(self, name: str, follower: Follower, until_end: bool) -> None:
        try:
            follower.run(until_end=until_end, ready=self._settled[name].set)
        except HeadwaterError as error:
            self._failure = self._failure or error
        except BaseException as error:  # a defect: whoever supervises the process is to see it
            self._failure = error
            self.stop()
        finally:
            self._stores[name].close()

    def _say(self, name: str, line: str) -> None:
        if self._followers[name].progress.state == "waiting":
            self._settled[name].set()
        self._tell(name, line)
