"""Several captures in one process, until one cannot go on or all are told to stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from headwater.capture.captures import Capture
from headwater.capture.runner import Progress
from headwater.core.urls import KafkaUrl
from headwater.workers.group import Group

__all__ = ["running_captures", "status_line"]


def running_captures(
    captures: Sequence[Capture], broker: KafkaUrl, *, say: Callable[[str, str], None]
) -> Group[Progress]:
    """Return the captures, to be started; `say` gets the name of one and a line about it."""
    runners = {each.name: each.runner(broker, say=partial(say, each.name)) for each in captures}
    return Group(runners, kind="capture", one_for_all=True)


def status_line(name: str, progress: Progress, rows_per_second: float) -> str:
    """Return how far a capture is, for people."""
    parts = [f"{name}: {progress.state}", f"{progress.rows:,} rows", f"{rows_per_second:,.0f} rows/s"]
    if progress.last_change_us:
        parts.append(f"lag {progress.lag_seconds():.2f} s")
    return ", ".join(parts)
