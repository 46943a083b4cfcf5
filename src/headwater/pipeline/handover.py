"""How a rebuilt view takes the place of the live one while `headwater run` may be running.

Whoever rebuilds must have the live query stand still when it swaps. It holds `run.lock` where nobody runs, and
otherwise asks, through files in DATA/rebuild:

    QUERY.lock      held for as long as somebody rebuilds that view
    QUERY.ask       whoever rebuilds: let the query stand still; holds a hash of the application's file
    QUERY.answer    whoever runs: "paused", or the reason why not
    QUERY.swapping  the store and the checkpoint are being changed over: should that be cut short, the next to
                    start the query finishes it

Gone `ask`, or a `lock` that nobody holds any more, lets the query go on, from the checkpoint that is there then.
"""

from __future__ import annotations

import fcntl
import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headwater.core.errors import HeadwaterError
from headwater.pipeline.checkpoint import Checkpoint
from headwater.views import ViewStore, open_store

__all__ = ["PAUSED", "Handover", "Rebuilds", "RunAlone", "alone", "finish", "shadow_query", "swap"]

PAUSED = "paused"
_SUFFIX = "~rebuild"
_POLL_SECONDS = 0.2


class RunAlone(HeadwaterError):
    """A directory that another process works in."""


def shadow_query(query: str) -> str:
    """Return the name of the query that rebuilds what another maintains."""
    return query + _SUFFIX


@contextmanager
def alone(path: Path, refusal: str) -> Iterator[None]:
    """Hold a lock file, or raise `RunAlone`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunAlone(refusal) from None
        yield


class Handover:
    """The files about one query."""

    def __init__(self, data: Path, query: str) -> None:
        directory = data / "rebuild"
        self.run_lock = data / "run.lock"
        self.lock = directory / f"{query}.lock"
        self.swapping = directory / f"{query}.swapping"
        self._ask = directory / f"{query}.ask"
        self._answer = directory / f"{query}.answer"

    # Whoever rebuilds

    @contextmanager
    def standstill(self, app: Path, tell: Callable[[str], None]) -> Iterator[None]:
        """Have the live query stand still; `tell` is called with what is waited for, and again and again."""
        self._answer.unlink(missing_ok=True)
        try:
            while True:
                with suppress(RunAlone), alone(self.run_lock, ""):
                    yield
                    return
                _write(self._ask, _hash(app))
                answer = _read(self._answer)
                if answer == PAUSED:
                    yield
                    return
                tell(answer or "`headwater run` has yet to let the view stand still")
                time.sleep(_POLL_SECONDS)
        finally:
            self._ask.unlink(missing_ok=True)

    # Whoever runs

    def asked(self, app: Path, loaded: str) -> str | None:
        """Return `PAUSED` where the query is asked to stand still and may, None where nobody asks.

        `loaded` is the hash of the application as it runs.
        """
        wanted = _read(self._ask)
        if wanted is None:
            return None
        with suppress(RunAlone), alone(self.lock, ""):
            self._ask.unlink(missing_ok=True)  # whoever asked is gone
            return None
        if wanted != loaded:
            return self.answer(
                f"{app.name} has changed since `headwater run` was started: stop it, and start it again after"
            )
        return PAUSED

    def answer(self, text: str) -> str:
        """Tell whoever asks."""
        if _read(self._answer) != text:
            _write(self._answer, text)
        return text

    def withdraw(self) -> None:
        """Take the answer back, as the query goes on."""
        self._answer.unlink(missing_ok=True)


class Rebuilds:
    """What whoever runs an application is asked for, about all of its views."""

    def __init__(self, data: Path, app: Path, views: str) -> None:
        self._data = data
        self._app = app
        self._views = views
        self._loaded = _hash(app)

    def asked(self, query: str) -> bool:
        """Tell whether a query is to stand still."""
        return Handover(self._data, query).asked(self._app, self._loaded) == PAUSED

    def paused(self, query: str) -> None:
        """Tell whoever asked that it does."""
        Handover(self._data, query).answer(PAUSED)

    def over(self, query: str) -> None:
        """Note that it goes on: whatever was left half done is finished first."""
        finish(self._data, self._views)
        Handover(self._data, query).withdraw()


def swap(data: Path, store: ViewStore, view: str, query: str) -> int:
    """Put a shadow and its checkpoint in the place of a view and its own, and return how many rows differ.

    The live query stands still, and so does the one that has built the shadow.
    """
    handover = Handover(data, query)
    _write(handover.swapping, view)
    changed = store.swap(view, query=query, shadow_query=shadow_query(query))
    _move(data, query)
    handover.swapping.unlink()
    return changed


def finish(data: Path, views: str) -> None:
    """Finish what was cut short in the middle of `swap`: the store tells whether it had happened."""
    for marker in (data / "rebuild").glob("*.swapping"):
        query, view = marker.name.removesuffix(".swapping"), marker.read_text()
        with open_store(views) as store:
            swapped = not store.has_shadow(view)
        if swapped:
            _move(data, query)
        marker.unlink()


def _move(data: Path, query: str) -> None:
    built = Checkpoint(data / "rebuild" / "checkpoints", shadow_query(query))
    if not built.path.exists():
        return  # it was moved before
    live = Checkpoint(data / "checkpoints", query)
    live.remove()
    live.path.parent.mkdir(parents=True, exist_ok=True)
    built.path.rename(live.path)
    # Cut short before this, the query is taken to be what the checkpoint was made with, and it is.
    with suppress(FileNotFoundError):
        built.file.rename(live.file)


def _hash(app: Path) -> str:
    return hashlib.sha256(app.read_bytes()).hexdigest()


def _read(path: Path) -> str | None:
    with suppress(FileNotFoundError):
        return path.read_text()
    return None


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_name(path.name + ".new")
    written.write_text(text)
    written.replace(path)
