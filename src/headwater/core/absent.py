"""Imports that do without a package that they would only load because it is there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["absent"]


@contextmanager
def absent(package: str) -> Iterator[None]:
    """Let imports inside the block find that a package is not installed; one that is loaded already stays."""
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]  # what Python takes for "not found"
    try:
        yield
    finally:
        del sys.modules[package]
