"""SQLite: triggers that note every change in a table of the same file, which is read and emptied."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.capture.sqlite.install import alter, install, remove
from headwater.capture.sqlite.source import SqliteSource, read_table

__all__ = ["alter", "install", "open_source", "read_table", "remove"]


def open_source(url: str, tables: Sequence[str], *, name: str) -> SqliteSource:
    """Return what follows tables of the file of an address."""
    return SqliteSource(url, tables, name=name)
