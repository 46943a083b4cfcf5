"""An application killed at every commit boundary: what comes out must be what comes out undisturbed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame

from headwater.app import App
from headwater.testing.app import Recorder, Rows, Run, run_app
from headwater.testing.rows_source import Items

__all__ = ["replay"]


class _Killed(Exception):
    """The crash that a test asked for."""


class _Killing(Recorder):
    """Crashes once at the commit of each epoch, and compares what the epoch gives when it comes again.

    To Spark it is the same whether a driver dies before or after a sink's commit: it has not noted the epoch as done,
    and runs it again. Where that gives the same rows, it does not matter either which of the two are kept.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self._killed = False
        self._difference = ""

    def commit(self, frame: DataFrame, epoch: int) -> None:
        rows = frame.toArrow().to_pylist()
        before = self.epochs.get(epoch)
        if before is not None:
            self._difference = _difference(
                f"{self._name} does not repeat itself: epoch {epoch}", before, rows
            )
            if not self._difference:
                return  # as a store that knows the epoch already
        self.epochs[epoch] = rows
        self._killed = True
        raise _Killed(f"at epoch {epoch}")

    def survived(self) -> bool:
        if self._difference:
            raise AssertionError(self._difference)
        killed, self._killed = self._killed, False
        return killed


def replay(app: App | str | Path, inputs: Mapping[str, Items], *, drain: bool = False) -> dict[str, Rows]:
    """Run an application as `run_app` does, and again with a crash around each commit; return its rows.

    Every query is killed at each of its commits, before Spark notes that the epoch is done, and restarted from its
    checkpoint. Where its rows then differ, or an epoch that is run again gives other rows (a function that is random,
    or reads the clock), an AssertionError says in which function and how.
    """
    undisturbed = run_app(app, inputs, drain=drain)
    with Run(app, inputs, drain=drain) as run:
        for query in run.queries:
            name = query.function.name
            if difference := _difference(name, undisturbed[name], run.output(query, _Killing(name))):
                raise AssertionError(difference)
    return undisturbed


def _difference(what: str, first: Rows, again: Rows) -> str:
    """Say how the rows differ, or nothing where they do not."""
    if sorted(first, key=repr) == sorted(again, key=repr):
        return ""
    return f"{what} gave {first}, and after a crash {again}"
