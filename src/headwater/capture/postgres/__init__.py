"""Postgres, followed by its log: logical decoding with `pgoutput`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from headwater.capture.change import Row, TableSchema
from headwater.capture.source import CaptureError

if TYPE_CHECKING:
    from headwater.capture.postgres.source import PostgresSource

__all__ = ["open_source", "read_table"]


def open_source(url: str, tables: Sequence[str], *, name: str) -> PostgresSource:
    """Return what follows some tables of a database; nothing is asked of it yet."""
    if find_spec("psycopg") is None:
        raise CaptureError("psycopg is not installed: pip install 'headwater[capture]'")
    from headwater.capture.postgres.config import Config
    from headwater.capture.postgres.source import PostgresSource

    return PostgresSource(Config.parse(url, tables, name=name))


def read_table(url: str, table: str) -> Iterator[tuple[TableSchema, list[Row]]]:
    """Yield the rows of a table as capture writes them, as one snapshot shows them, without a trace in the database."""
    if find_spec("psycopg") is None:
        raise CaptureError("psycopg is not installed: pip install 'headwater[capture]'")
    from headwater.capture.postgres.catalog import Catalog
    from headwater.capture.postgres.config import Config
    from headwater.capture.postgres.connection import connect, sentences
    from headwater.capture.postgres.snapshot import begin_reading
    from headwater.capture.postgres.snapshot import read_table as read_rows

    config = Config.parse(url, [table], name="verify")
    session = connect(config)
    try:
        with sentences(config, f"reading {table}"):
            begin_reading(session)
            [found] = Catalog(config, session).tables()
            yield found.schema, []
            for changes in read_rows(session, found, {}):
                yield found.schema, [change.after for change in changes if change.after is not None]
    finally:
        session.close()
