"""What a server says about itself and its tables, and whether that will do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headwater.capture.mysql.connection import Connection
from headwater.capture.mysql.offset import Gtids
from headwater.capture.mysql.tables import Field, Table
from headwater.capture.source import CaptureError, TryAgain

__all__ = ["Described", "characters_of", "check_same", "check_server", "describe", "log_end"]

_TRANSACTIONAL = ("innodb", "rocksdb", "tokudb", "myrocks")


@dataclass(frozen=True)
class Described:
    """A table, and the index that its key is."""

    table: Table
    index: str


def check_server(connection: Connection) -> None:
    """Raise an error unless the server writes what is needed, and lets us read it."""
    config = connection.config
    names = (
        "log_bin",
        "binlog_format",
        "binlog_row_image",
        "binlog_row_value_options",
    )
    wanted = ", ".join(f"'{name}'" for name in names)
    found = connection.texts(f"SHOW GLOBAL VARIABLES WHERE variable_name IN ({wanted})")
    settings = {str(name).lower(): str(value).upper() for name, value in found}
    if settings.get("log_bin") not in ("ON", "1"):
        raise CaptureError(
            f"{config} writes no binary log: start it with log_bin, server_id and binlog_format = ROW"
        )
    if settings.get("binlog_format", "ROW") != "ROW":
        raise CaptureError(
            f"{config} writes its binary log as {settings['binlog_format']}, which does not say what became of each"
            " row: SET GLOBAL binlog_format = 'ROW', and have applications connect anew"
        )
    if settings.get("binlog_row_image", "FULL") != "FULL":
        raise CaptureError(
            f"{config} logs {settings['binlog_row_image']} rows, without all their columns: SET GLOBAL"
            " binlog_row_image = 'FULL', and have applications connect anew"
        )
    if settings.get("binlog_row_value_options"):
        raise CaptureError(f"{config} logs parts of JSON documents: SET GLOBAL binlog_row_value_options = ''")
    _check_grants(connection)


def check_same(connection: Connection, seen: Gtids) -> None:
    """Raise an error unless the server, or one that it is a replica of, is the one whose transactions were seen."""
    unknown = seen.is_mariadb != connection.is_mariadb
    if not unknown and not connection.is_mariadb:
        executed = Gtids(connection.texts("SELECT @@global.gtid_executed")[0][0] or "")
        unknown = not seen.servers <= executed.servers
    if unknown:
        raise CaptureError(
            f"{connection.config} has never had the transactions that were followed ({seen}): give the address of the"
            " server that has, or of a replica of it; if its log was reset, `headwater capture snapshot` takes a new"
            " snapshot"
        )


def _check_grants(connection: Connection) -> None:
    grants = [str(row[0]) for row in connection.texts("SHOW GRANTS")]
    granted = " ".join(text.partition(" ON ")[0].upper() for text in grants if " ON *.* " in text)
    if any(" ON " not in text for text in grants):
        return  # there are roles, whose privileges are not shown here: the server will say what is missing
    missing = [
        name
        for name, others in (
            ("REPLICATION SLAVE", ("ALL PRIVILEGES",)),
            ("REPLICATION CLIENT", ("ALL PRIVILEGES", "BINLOG MONITOR")),
        )
        if name not in granted and not any(other in granted for other in others)
    ]
    if missing:
        raise CaptureError(
            f"{connection.config} may not be followed by this user: GRANT {', '.join(missing)} ON *.* TO"
            f" '{connection.config.user}'"
        )


def log_end(connection: Connection) -> tuple[str, int]:
    """Return the file and the position where the binary log ends now."""
    try:
        found = connection.texts("SHOW MASTER STATUS")
    except TryAgain:
        raise
    except CaptureError:  # MySQL has called it so since 8.2, and not known the older name since 8.4
        found = connection.texts("SHOW BINARY LOG STATUS")
    if not found:
        raise CaptureError(f"{connection.config} writes no binary log: start it with log_bin")
    return str(found[0][0]), int(found[0][1] or 4)


def characters_of(connection: Connection, charset: str) -> str | None:
    """Return what each of the 256 bytes is in a character set; None where it has more characters."""
    found = connection.texts(
        f"SELECT maxlen FROM information_schema.character_sets WHERE character_set_name = {connection.literal(charset)}"
    )
    if not found or found[0][0] != "1":
        return None
    # One by one: what a byte means must not depend on the one in front of it, nor on an end of the text.
    bytes_ = ", ".join(f"CONVERT(_{charset} x'{byte:02x}' USING utf8mb4)" for byte in range(256))
    return "".join(cell or "�" for cell in connection.texts(f"SELECT {bytes_}")[0])


def describe(connection: Connection, tables: Iterable[tuple[str, str]]) -> list[Described]:
    """Return tables as they are now, in their order, or raise an error that says what is wrong with one."""
    return [_describe(connection, schema, name) for schema, name in tables]


def _describe(connection: Connection, schema: str, name: str) -> Described:
    config = connection.config
    where = f"table_schema = {connection.literal(schema)} AND table_name = {connection.literal(name)}"
    found = connection.texts(
        "SELECT table_type, engine, table_collation, table_schema, table_name FROM information_schema.tables"
        f" WHERE {where}"
    )
    if not found:
        raise CaptureError(
            f"{config} has no table {schema}.{name}, or none that this user may see: look after its name, or GRANT"
            f" SELECT ON {schema}.{name} TO '{config.user}'"
        )
    kind, engine, collation, *names = found[0]
    if names != [schema, name]:
        raise CaptureError(
            f"{schema}.{name} is called {'.'.join(map(str, names))} by {config}: write it like that"
        )
    if kind not in ("BASE TABLE", "SYSTEM VERSIONED"):
        raise CaptureError(f"{schema}.{name} is a {str(kind).lower()}: capture the tables that it is made of")
    if (engine or "").lower() not in _TRANSACTIONAL:
        raise CaptureError(
            f"{schema}.{name} is kept by {engine}, which has no transactions: ALTER TABLE {schema}.{name}"
            " ENGINE = InnoDB"
        )
    charset = (collation or "utf8mb4").partition("_")[0]
    fields = tuple(_fields(connection, where, schema, name))
    key, index = _key(connection, where, schema, name, {field.name for field in fields if not field.optional})
    return Described(Table(schema, name, fields, key, charset), index)


def _fields(connection: Connection, where: str, schema: str, name: str) -> Iterable[Field]:
    rows = connection.texts(
        "SELECT column_name, column_type, character_set_name, is_nullable FROM information_schema.columns WHERE"
        f" {where} ORDER BY ordinal_position"
    )
    for column, native, charset, optional in rows:
        if "COMPRESSED" in (native or ""):
            raise CaptureError(
                f"{schema}.{name} keeps {column} compressed, which cannot be read from the binary log: make it a column"
                " without COMPRESSED"
            )
        yield Field(str(column), str(native), charset, optional == "YES")


def _key(
    connection: Connection, where: str, schema: str, name: str, filled: set[str]
) -> tuple[tuple[str, ...], str]:
    """Return the primary key, or the first unique index without NULL, and its name."""
    indexes: dict[str, list[str | None]] = {}
    rows = connection.texts(
        "SELECT index_name, column_name FROM information_schema.statistics WHERE"
        f" {where} AND non_unique = 0 ORDER BY index_name <> 'PRIMARY', index_name, seq_in_index"
    )
    for index, column in rows:
        indexes.setdefault(str(index), []).append(column)
    for index, columns in indexes.items():
        if all(column in filled for column in columns):
            return tuple(str(column) for column in columns), index
    raise CaptureError(
        f"{schema}.{name} has no primary key, and no unique index without NULL that could take its place, so that its"
        f" rows cannot be told apart: ALTER TABLE {schema}.{name} ADD PRIMARY KEY (…)"
    )
