"""Capture from MySQL and MariaDB: a snapshot, then the changes of their binary log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headwater.capture.change import Row, TableSchema
from headwater.capture.mysql.config import Config
from headwater.capture.source import CaptureError, Source

__all__ = ["open_source", "read_table"]


def open_source(url: str, tables: Sequence[str], *, name: str) -> Source:
    """Return what follows the server at an address; nothing is asked of it yet."""
    try:
        from headwater.capture.mysql.source import MySQLSource
    except ModuleNotFoundError as error:
        raise CaptureError(
            f"capture from MySQL needs {error.name}: pip install 'headwater[capture]'"
        ) from error
    return MySQLSource(Config.parse(url, tables))


def read_table(url: str, table: str) -> Iterator[tuple[TableSchema, list[Row]]]:
    """Yield the rows of a table as capture writes them, as one snapshot shows them."""
    try:
        from headwater.capture.mysql.snapshot import read_rows
    except ModuleNotFoundError as error:
        raise CaptureError(
            f"capture from MySQL needs {error.name}: pip install 'headwater[capture]'"
        ) from error
    yield from read_rows(Config.parse(url, [table]))
