"""What the database knows about itself: its tables, types and settings; asked before it is followed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headwater.capture.change import Column, TableSchema
from headwater.capture.postgres.config import Config
from headwater.capture.postgres.connection import Session, rows
from headwater.capture.postgres.pgoutput import Relation
from headwater.capture.postgres.types import TYPES_QUERY, TypeRow, Types
from headwater.capture.postgres.values import Convert, as_is
from headwater.capture.source import CaptureError, TryAgain

__all__ = ["Catalog", "Described", "Table"]

Described = tuple[str, int, int, bool]
"""A column's name, the number of its type, the type's modifier, and whether it may be NULL."""

_TABLE = """
SELECT c.oid::int8, c.relkind, c.relpersistence, c.relreplident, has_table_privilege(c.oid, 'SELECT'),
       (SELECT array_agg(a.attname::text ORDER BY k.place)
          FROM pg_index i, unnest(i.indkey) WITH ORDINALITY AS k(attnum, place), pg_attribute a
         WHERE i.indrelid = c.oid AND a.attrelid = c.oid AND a.attnum = k.attnum AND k.place <= i.indnkeyatts
           AND CASE WHEN c.relreplident = 'i' THEN i.indisreplident ELSE i.indisprimary END)
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %s AND c.relname = %s
"""

_COLUMNS = """
SELECT attname::text, atttypid::int8, atttypmod, attnotnull
  FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum
"""

_SERVER = """
SELECT current_setting('server_version_num')::int, current_setting('wal_level'), current_setting('server_encoding'),
       pg_is_in_recovery(), current_database(), current_user::text,
       (SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user)
"""

_STILL = """
SELECT (SELECT count(*) FROM unnest(%s::oid[], %s::name[], %s::name[]) AS t(oid, schema, name)
          JOIN pg_class c ON c.oid = t.oid AND c.relname = t.name
          JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = t.schema),
       EXISTS (SELECT FROM pg_publication WHERE pubname = %s)
"""

_KINDS = {
    "v": "a view",
    "m": "a materialized view",
    "f": "a foreign table",
    "S": "a sequence",
    "i": "an index",
}
_OLDEST = 140000


@dataclass(frozen=True, eq=False)
class Table:
    """A table, what is needed to read it, and what its rows look like to others."""

    oid: int
    schema: TableSchema
    described: tuple[Described, ...]
    """The columns, as the database describes them."""
    converts: tuple[Convert, ...]
    """One for each column."""
    is_key: tuple[bool, ...]
    """Which columns the log tells of a row that is gone, or has another key now."""
    kind: str
    """r(elation) or p(artitioned)."""

    @cached_property
    def to_convert(self) -> tuple[tuple[int, Convert], ...]:
        """The places of the columns whose text is not their JSON already, and what makes it so."""
        return tuple((n, convert) for n, convert in enumerate(self.converts) if convert is not as_is)

    def looks_like(self, relation: Relation) -> bool:
        """Tell whether this is the table that the log speaks of."""
        told = [(column.name, column.type_oid, column.type_modifier) for column in relation.columns]
        return (
            (self.schema.schema, self.schema.name) == (relation.schema, relation.name)
            and [column[:3] for column in self.described] == told
            and (
                relation.identity == "f" or self.is_key == tuple(column.is_key for column in relation.columns)
            )
        )


class Catalog:
    """Asks one session; what it learned about types is kept."""

    def __init__(self, config: Config, session: Session) -> None:
        self._config = config
        self._session = session
        self._types: Types | None = None
        self.server_version = 0
        self.database = ""
        self.user = ""

    def check_server(self) -> None:
        """Raise what has to be changed at the server before anything can be followed."""
        [found] = rows(self._session, _SERVER)
        self.server_version, wal_level, encoding, is_standby, self.database, self.user, may_replicate = found
        place = self._config.place
        if self.server_version < _OLDEST:
            raise CaptureError(
                f"{place} is Postgres {self.server_version // 10000}: capture needs 14 or newer"
            )
        if is_standby:
            raise CaptureError(
                f"{place} is a standby, whose log is its primary's: give the primary's address"
            )
        if wal_level != "logical":
            raise CaptureError(
                f"{place} writes its log with wal_level = {wal_level}, which leaves out what capture needs:"
                " ALTER SYSTEM SET wal_level = logical, and restart the server"
            )
        if encoding == "SQL_ASCII":
            raise CaptureError(
                f"{place} has the encoding SQL_ASCII, whose texts may be in any: dump it into a database with UTF8"
            )
        if not may_replicate:
            raise CaptureError(
                f"{place} does not let {self.user} read its log: ALTER ROLE {self.user} REPLICATION,"
                " or use a user that has it"
            )

    def tables(self) -> list[Table]:
        """Return the captured tables as they are now, or raise why one of them cannot be captured."""
        return [self._table(schema, name) for schema, name in self._config.tables]

    def check_still(self, tables: Collection[Table]) -> None:
        """Raise if a table is not the one any more that it was, or nothing is published any more: the log is silent."""
        names = [(table.schema.schema, table.schema.name) for table in tables]
        oids = [table.oid for table in tables]
        [(same, published)] = rows(
            self._session,
            _STILL,
            (oids, [a for a, _ in names], [b for _, b in names], self._config.publication),
        )
        if same != len(oids) or not published:
            raise TryAgain(
                f"a captured table of {self._config.place}, or its publication, was dropped, renamed or replaced"
            )

    def changed(self, relation: Relation, known: Table) -> Table:
        """Return a table that is not what it was any more, as the log has it from now on."""
        place = f"{relation.schema}.{relation.name}"
        optional = {name: can_be_null for name, _, _, can_be_null in known.described}
        described = tuple(
            (column.name, column.type_oid, column.type_modifier, optional.get(column.name, True))
            for column in relation.columns
        )
        is_key = tuple(column.is_key for column in relation.columns)
        names = [name for name, _, _, _ in described]
        if relation.identity == "f":  # everything is told, and nothing of it called the key
            found = rows(self._session, _TABLE, (relation.schema, relation.name))
            key = found[0][5] if found and set(found[0][5] or ()) <= set(names) else known.schema.key
            is_key = tuple(name in key for name in names)
        else:
            told = [name for name, is_part in zip(names, is_key, strict=True) if is_part]
            key = known.schema.key if set(known.schema.key) == set(told) else told
        _check_key(place, relation.identity, key)
        columns, converts = self._columns(described)
        schema = TableSchema(relation.schema, relation.name, columns, tuple(key))
        return Table(relation.oid, schema, described, converts, is_key, known.kind)

    def _columns(self, described: tuple[Described, ...]) -> tuple[tuple[Column, ...], tuple[Convert, ...]]:
        types = self._types
        if types is None or any(oid not in types for _, oid, _, _ in described):
            # An enum or a domain may have been made since.
            types = self._types = Types(TypeRow(*row) for row in rows(self._session, TYPES_QUERY))
        wanted = [(oid, modifier) for _, oid, modifier, _ in described]
        natives = rows(
            self._session,
            "SELECT format_type(o, m) FROM unnest(%s::oid[], %s::int[]) WITH ORDINALITY AS t(o, m, n) ORDER BY n",
            ([oid for oid, _ in wanted], [modifier for _, modifier in wanted]),
        )
        columns: list[Column] = []
        converts: list[Convert] = []
        for (name, oid, modifier, optional), (native,) in zip(described, natives, strict=True):
            known = types.find(oid, modifier)
            columns.append(Column(name, known.ddl, native, optional))
            converts.append(known.convert)
        return tuple(columns), tuple(converts)

    def _table(self, schema: str, name: str) -> Table:
        place = f"{schema}.{name}"
        found = rows(self._session, _TABLE, (schema, name))
        if not found:
            raise CaptureError(
                f"there is no table {place} in {self._config.place}: it was dropped, renamed, or never there;"
                " check its name, or stop capturing it"
            )
        oid, kind, persistence, identity, may_read, key = found[0]
        _check_kind(place, kind, persistence)
        if not may_read:
            raise CaptureError(f"{self.user} may not read {place}: GRANT SELECT ON {place} TO {self.user}")
        _check_key(place, identity, key)
        described = tuple(
            (n, o, m, not required) for n, o, m, required in rows(self._session, _COLUMNS, (oid,))
        )
        columns, converts = self._columns(described)
        if missing := set(key) - {column.name for column in columns}:
            raise CaptureError(
                f"the key of {place} has {', '.join(sorted(missing))}, a generated column, which the log does not tell:"
                " give it another key, with REPLICA IDENTITY USING INDEX"
            )
        is_key = tuple(column.name in key for column in columns)
        return Table(oid, TableSchema(schema, name, columns, tuple(key)), described, converts, is_key, kind)


def _check_kind(place: str, kind: str, persistence: str) -> None:
    if kind not in ("r", "p"):
        raise CaptureError(
            f"{place} is {_KINDS.get(kind, 'no table')}: capture the tables that it is made of"
        )
    if persistence != "p":
        made = "an unlogged" if persistence == "u" else "a temporary"
        raise CaptureError(
            f"{place} is {made} table, of which nothing is in the log: ALTER TABLE {place} SET LOGGED"
        )


def _check_key(place: str, identity: str, key: Any) -> None:
    if not key:
        raise CaptureError(
            f"{place} has no primary key, and rows are told apart by it: ALTER TABLE {place} ADD PRIMARY KEY (…), or"
            f" ALTER TABLE {place} REPLICA IDENTITY USING INDEX a unique index over columns that are NOT NULL"
        )
    if identity == "n":
        # Publishing it would have the server refuse every update and delete of it.
        raise CaptureError(
            f"{place} has REPLICA IDENTITY NOTHING, so that the log does not say which rows change:"
            f" ALTER TABLE {place} REPLICA IDENTITY DEFAULT"
        )
