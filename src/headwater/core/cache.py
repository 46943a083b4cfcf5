"""Where files are kept that can be made or fetched again."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["cache_directory", "exclusive"]


def cache_directory() -> Path:
    """Return the directory: HEADWATER_CACHE, else the working copy's or the user's cache."""
    if named := os.environ.get("HEADWATER_CACHE"):
        return Path(named)
    checkout = Path(__file__).resolve().parents[3]
    if (checkout / "pyproject.toml").is_file():
        return checkout / ".cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headwater"


@contextmanager
def exclusive(lock: Path) -> Iterator[None]:
    """Hold a lock of all processes on this machine inside a block."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
