"""The publication: which tables the log is decoded for."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import NamedTuple

import psycopg

from headwater.capture.postgres.catalog import Table
from headwater.capture.postgres.config import Config
from headwater.capture.postgres.connection import Session, quoted, rows
from headwater.capture.source import CaptureError, TryAgain

__all__ = ["check_told", "ensure_publication"]

_PUBLICATION = """
SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate, pubviaroot FROM pg_publication WHERE pubname = %s
"""
_PUBLISHED = "SELECT schemaname::text, tablename::text FROM pg_publication_tables WHERE pubname = %s"
_NARROWED = """
SELECT prrelid::regclass::text FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
 WHERE pubname = %s AND prrelid = ANY (%s) AND (prqual IS NOT NULL OR prattrs IS NOT NULL)
"""
_TELLS_ALL = "publish = 'insert, update, delete, truncate', publish_via_partition_root = true"

_WAIT_SECONDS = 60.0


def ensure_publication(
    config: Config,
    session: Session,
    tables: list[Table],
    server_version: int,
    *,
    followed: Collection[Table] | None = None,
) -> None:
    """Make our own publication, or have it name just these tables; check one that was given.

    A table counts for what is committed later. So once a publication was changed, this waits until whatever was
    running then has ended: it would not be told otherwise. Of tables that have been `followed` up to a position it
    has to have told all the time: mending it would hide that changes are missing.
    """
    name = config.publication
    if not rows(session, _PUBLICATION, (name,)):
        if followed is not None:
            raise CaptureError(
                f"the publication {name} of {config.place} is gone, and what happened since may not be"
                " told: `headwater capture snapshot` reads the tables anew"
            )
        create = f"CREATE PUBLICATION {quoted(name)} FOR TABLE {_listed(tables)}"
        _change(config, session, f"{create} WITH ({_TELLS_ALL})")
        return
    if followed and (left_out := _left_out(config, session, followed, server_version)):
        mend = f"{left_out.mend}, and " if not config.owns_publication else ""
        raise CaptureError(
            f"the publication {name} of {config.place} {left_out.what}, so that changes are missing:"
            f" {mend}`headwater capture snapshot` reads the tables anew"
        )
    left_out = _left_out(config, session, tables, server_version)
    if not config.owns_publication:
        if left_out:
            raise CaptureError(f"the publication {name} {left_out.what}: {left_out.mend}")
        return
    published = set(rows(session, _PUBLISHED, (name,)))
    if left_out or published != {(table.schema.schema, table.schema.name) for table in tables}:
        # The tables last: it is what waits for whatever is running.
        session.execute(f"ALTER PUBLICATION {quoted(name)} SET ({_TELLS_ALL})".encode())
        _change(config, session, f"ALTER PUBLICATION {quoted(name)} SET TABLE {_listed(tables)}")


def check_told(config: Config, session: Session, tables: Collection[Table], server_version: int) -> None:
    """Raise if the publication was changed so that it does not tell all of some tables any more."""
    if left_out := _left_out(config, session, tables, server_version):
        raise TryAgain(f"the publication {config.publication} of {config.place} {left_out.what}")


class _LeftOut(NamedTuple):
    what: str
    mend: str


def _left_out(
    config: Config, session: Session, tables: Collection[Table], server_version: int
) -> _LeftOut | None:
    """Return what a publication, one that is there, does not tell of tables."""
    name = config.publication
    [(tells_all, via_root)] = rows(session, _PUBLICATION, (name,)) or [(False, False)]
    if not tells_all:
        return _LeftOut(
            "leaves out some kinds of changes",
            f"ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate')",
        )
    if not via_root and any(table.kind == "p" for table in tables):
        return _LeftOut(
            "tells of partitions, not of their table",
            f"ALTER PUBLICATION {name} SET (publish_via_partition_root = true)",
        )
    published = set(rows(session, _PUBLISHED, (name,)))
    missing = [
        str(table.schema) for table in tables if (table.schema.schema, table.schema.name) not in published
    ]
    if missing:
        listed = ", ".join(sorted(missing))
        return _LeftOut(f"does not have {listed}", f"ALTER PUBLICATION {name} ADD TABLE {listed}")
    if server_version >= 150000:
        oids = [table.oid for table in tables]
        if narrowed := ", ".join(sorted(table for (table,) in rows(session, _NARROWED, (name, oids)))):
            return _LeftOut(
                f"leaves out rows or columns of {narrowed}, which a snapshot would show",
                f"ALTER PUBLICATION {name} SET TABLE without WHERE and lists of columns",
            )
    return None


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
