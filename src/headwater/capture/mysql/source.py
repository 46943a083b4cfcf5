"""A MySQL or MariaDB server that is followed."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from headwater.capture.change import Batch, Position, TableSchema
from headwater.capture.mysql.catalog import characters_of, check_same, check_server, describe, log_end
from headwater.capture.mysql.config import Config
from headwater.capture.mysql.connection import Connection, identifier
from headwater.capture.mysql.history import History
from headwater.capture.mysql.keys import KeyOrder, literal
from headwater.capture.mysql.offset import Gtids, Offset
from headwater.capture.mysql.seen import Seen
from headwater.capture.mysql.snapshot import read_snapshot, unread
from headwater.capture.mysql.stream import Stream
from headwater.capture.mysql.tables import Field, Table, load_tables
from headwater.capture.mysql.text import Texts
from headwater.capture.source import TryAgain

__all__ = ["MySQLSource"]


class MySQLSource:
    """What `Source` asks for."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._connection: Connection | None = None
        self._stream: Stream | None = None

    def describe(self) -> list[TableSchema]:
        """Return the captured tables as they are now, once the server has all that following them needs."""
        connection = self._connected()
        check_server(connection)
        return [described.table.public for described in describe(connection, self.config.tables)]

    def follow(self, position: Position | None) -> Iterator[Batch]:
        """Yield what happens behind a position; without one, a snapshot first."""
        offset = None if position is None else Offset.parse(position)
        connection = self._connected()
        try:
            check_server(connection)
            if offset is not None and offset.gtid:
                check_same(connection, Gtids(offset.gtid))
            if unread(offset, self.config.tables):
                for batch in read_snapshot(connection, offset, self.config.tables):
                    offset = Offset.parse(batch.position)
                    yield batch
            while offset is not None:
                offset = yield from self._changes(offset)
        finally:
            self.close()

    def acknowledge(self, position: Position) -> None:
        """Do nothing: the server deletes its log by itself, by age and size."""

    def close(self) -> None:
        """Let go of the server."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = Connection(self.config)
        return self._connection

    def _changes(self, offset: Offset) -> Generator[Batch, None, Offset]:
        """Yield changes until the server ends its log, and return where to go on.

        It does so before it shuts down, when somebody kills the query, and (MySQL 8.0.31) when a commit comes in the
        moment of a heartbeat.
        """
        connection = self._connected()
        is_mariadb, end = connection.is_mariadb, log_end(connection)
        # Hours may pass until the server has to be asked for something again, more than it keeps connections for.
        self.close()
        self._stream = Stream(
            self.config,
            offset,
            History(load_tables(offset.tables), self.config.tables, self._look_up),
            Seen(offset.snapshot, KeyOrder(self._compare)),
            Texts(self._characters_of),
            is_mariadb=is_mariadb,
            end=end,
        )
        last: Batch | None = None
        for last in self._stream.batches():
            yield last
        if last is None:  # asking again and again would lead nowhere
            raise TryAgain(f"{self.config} ended its binary log as soon as it was asked for it")
        return Offset.parse(last.position)

    def _look_up(self, name: tuple[str, str]) -> Table:
        with Connection(self.config) as connection:
            return describe(connection, [name])[0].table

    def _characters_of(self, charset: str) -> str | None:
        with Connection(self.config) as connection:
            return characters_of(connection, charset)

    def _compare(self, table: Table, field: Field, one: str, other: str) -> int:
        """Compare two texts of a column in the server, by that column's rules."""
        connection = self._connected()
        column, place = identifier(field.name), identifier(table.schema, table.name)
        # Beside a column in a UNION, a text is of the column's character set and collation.
        one, other = (
            f"(SELECT {column} AS v FROM {place} WHERE 1 = 0 UNION ALL SELECT"
            f" {literal(field, text, connection.literal)})"
            for text in (one, other)
        )
        less, more = connection.texts(f"SELECT a.v < b.v, a.v > b.v FROM {one} a, {other} b")[0]
        return int(more or 0) - int(less or 0)
