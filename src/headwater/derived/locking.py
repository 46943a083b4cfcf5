"""A lock between processes, held in a file; it ends with its process."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.derived.errors import DerivedError

__all__ = ["locked", "sync_directory"]


@contextmanager
def locked(path: Path, *, otherwise: str | None = None) -> Iterator[None]:
    """Hold a lock inside the block, after waiting for whoever has it; or raise `otherwise` instead of waiting."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (fcntl.LOCK_NB if otherwise else 0))
        except BlockingIOError:
            raise DerivedError(otherwise or "") from None
        yield
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Have the names in a directory survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
