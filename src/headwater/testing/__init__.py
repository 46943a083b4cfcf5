"""What users and we test with: applications on rows, a manual clock, a faulty disk, a broker in a process."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.testing.app import run_app as run_app
    from headwater.testing.app import run_function as run_function
    from headwater.testing.replay import replay as replay
    from headwater.testing.rows_source import advance as advance

# Spark is imported with the first of these that is asked for, and not by whoever wants a manual clock.
_HOMES = {
    "advance": "headwater.testing.rows_source",
    "replay": "headwater.testing.replay",
    "run_app": "headwater.testing.app",
    "run_function": "headwater.testing.app",
}

__all__ = ["advance", "replay", "run_app", "run_function"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
