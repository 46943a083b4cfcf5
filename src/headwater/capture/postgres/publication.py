"""The publication: which tables the log is decoded for."""

from __future__ import annotations

import time

import psycopg

from headwater.capture.postgres.catalog import Table
from headwater.capture.postgres.config import Config
from headwater.capture.postgres.connection import Session, quoted, rows
from headwater.capture.source import CaptureError, TryAgain

__all__ = ["ensure_publication"]

_PUBLICATION = """
SELECT puballtables, pubinsert AND pubupdate AND pubdelete AND pubtruncate, pubviaroot FROM pg_publication
 WHERE pubname = %s
"""
_PUBLISHED = "SELECT schemaname::text, tablename::text FROM pg_publication_tables WHERE pubname = %s"
_NARROWED = """
SELECT prrelid::regclass::text FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
 WHERE pubname = %s AND (prqual IS NOT NULL OR prattrs IS NOT NULL)
"""

_WAIT_SECONDS = 60.0


def ensure_publication(
    config: Config, session: Session, tables: list[Table], server_version: int, *, may_create: bool
) -> None:
    """Make our own publication, or have it name just these tables; check one that was given.

    A table counts for what is committed later. So once a publication was changed, this waits until whatever was
    running then has ended: it would not be told otherwise.
    """
    found = rows(session, _PUBLICATION, (config.publication,))
    if not found:
        if not may_create:
            raise CaptureError(
                f"the publication {config.publication} of {config.place} is gone, and what happened since may not be"
                " told: `headwater capture snapshot` reads the tables anew"
            )
        create = f"CREATE PUBLICATION {quoted(config.publication)} FOR TABLE {_listed(tables)}"
        _change(config, session, f"{create} WITH (publish_via_partition_root = true)")
        return
    all_tables, tells_all, via_root = found[0]
    published = {(schema, name) for schema, name in rows(session, _PUBLISHED, (config.publication,))}
    wanted = {(table.schema.schema, table.schema.name) for table in tables}
    if config.owns_publication:
        if published != wanted:
            _change(
                config, session, f"ALTER PUBLICATION {quoted(config.publication)} SET TABLE {_listed(tables)}"
            )
        return
    name = config.publication
    if not tells_all:
        raise CaptureError(
            f"the publication {name} leaves out some kinds of changes:"
            f" ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate')"
        )
    if not via_root and any(table.kind == "p" for table in tables):
        raise CaptureError(
            f"the publication {name} tells of partitions, not of their table:"
            f" ALTER PUBLICATION {name} SET (publish_via_partition_root = true)"
        )
    if missing := sorted(wanted - published):
        listed = ", ".join(f"{schema}.{table}" for schema, table in missing)
        raise CaptureError(
            f"the publication {name} does not have {listed}: ALTER PUBLICATION {name} ADD TABLE {listed}"
        )
    if server_version >= 150000 and not all_tables:
        narrowed = {table for (table,) in rows(session, _NARROWED, (name,))}
        if narrowed:
            raise CaptureError(
                f"the publication {name} leaves out rows or columns of {', '.join(sorted(narrowed))}, which a snapshot"
                f" would show: ALTER PUBLICATION {name} SET TABLE without WHERE and lists of columns"
            )


def _change(config: Config, session: Session, statement: str) -> None:
    try:
        with session.transaction():
            session.execute(statement.encode())
            [(xid,)] = rows(session, "SELECT pg_current_xact_id()::text::int8")
    except psycopg.errors.InsufficientPrivilege as error:
        raise CaptureError(
            f"{config.place} does not let this user say what is published ({error.diag.message_primary}): have the"
            f" tables' owner run `{statement}`, and add publication={config.publication} to the address"
        ) from error
    deadline = time.monotonic() + _WAIT_SECONDS
    while rows(session, "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::int8")[0][0] <= xid:
        if time.monotonic() > deadline:
            raise TryAgain(
                f"{config.place} has transactions that run for more than {_WAIT_SECONDS:.0f} s, and a snapshot waits"
                " for them: see pg_stat_activity for the oldest backend_xid"
            )
        time.sleep(0.05)


def _listed(tables: list[Table]) -> str:
    # Without ONLY, tables that inherit would be published besides, under their own names.
    return ", ".join(
        f"{'ONLY ' if table.kind == 'r' else ''}{quoted(table.schema.schema, table.schema.name)}"
        for table in tables
    )
