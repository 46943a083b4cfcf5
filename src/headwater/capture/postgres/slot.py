"""The replication slot: has Postgres keep its log for us from one place on, and nobody else read from there."""

from __future__ import annotations

from typing import NamedTuple

from headwater.capture.postgres.config import Config
from headwater.capture.postgres.connection import Session, replication_command, rows
from headwater.capture.postgres.offset import lsn_number, lsn_text
from headwater.capture.source import CaptureError, TryAgain

__all__ = ["NewSlot", "Slot", "check_followable", "create_slot", "drop_slot", "find_slot"]

_SLOT = """
SELECT plugin::text, database::text, active_pid, confirmed_flush_lsn::text, coalesce(wal_status, ''),
       coalesce(to_jsonb(s) ->> 'invalidation_reason', to_jsonb(s) ->> 'conflicting')
  FROM pg_replication_slots s WHERE slot_name = %s
"""
_ALL_SLOTS = "SELECT slot_name::text FROM pg_replication_slots WHERE NOT active ORDER BY 1"
_START_OVER = "`headwater capture snapshot` reads the tables anew with a new slot"


class Slot(NamedTuple):
    """A slot as it is."""

    plugin: str
    database: str
    active_pid: int | None
    confirmed_lsn: int
    wal_status: str
    reason: str | None


class NewSlot(NamedTuple):
    """A slot just made, and the snapshot that shows all that it will not tell."""

    lsn: int
    snapshot: str


def find_slot(config: Config, session: Session) -> Slot | None:
    """Return the capture's slot, if there is one."""
    found = rows(session, _SLOT, (config.slot,))
    if not found:
        return None
    plugin, database, pid, lsn, status, reason = found[0]
    return Slot(
        plugin, database, pid, lsn_number(lsn) if lsn else 0, status, reason if reason != "false" else None
    )


def create_slot(config: Config, session: Session, replication: Session) -> NewSlot:
    """Make the slot; its snapshot can be used until the next command of this replication session."""
    try:
        result = replication_command(
            replication, f'CREATE_REPLICATION_SLOT "{config.slot}" LOGICAL pgoutput EXPORT_SNAPSHOT'
        )
    except Exception as error:
        if getattr(error, "sqlstate", None) != "53400":
            raise
        unused = ", ".join(name for (name,) in rows(session, _ALL_SLOTS)) or "none"
        raise CaptureError(
            f"{config.place} has no replication slot left: raise max_replication_slots and restart it, or drop a slot"
            f" that nobody needs any more with pg_drop_replication_slot (inactive are: {unused})"
        ) from error
    lsn, snapshot = result.get_value(0, 1), result.get_value(0, 2)
    assert lsn is not None
    assert snapshot is not None
    return NewSlot(lsn_number(lsn.decode()), snapshot.decode())


def drop_slot(config: Config, session: Session) -> None:
    """Forget the slot, so that the server forgets the log that it kept for it."""
    rows(session, "SELECT pg_drop_replication_slot(%s)", (config.slot,))


def check_free(config: Config, slot: Slot) -> None:
    """Raise unless nobody reads from the slot."""
    if slot.active_pid is not None:
        raise TryAgain(
            f"the slot {config.slot} of {config.place} is in use by the server's process {slot.active_pid}: another"
            " capture follows it, or the server has not noticed yet that an earlier one is gone"
        )


def check_given(config: Config, slot: Slot, database: str) -> None:
    """Raise unless a slot is one that tells what we read."""
    if slot.plugin != "pgoutput" or slot.database != database:
        raise CaptureError(
            f"the slot {config.slot} is for {slot.plugin} in {slot.database}, and not for pgoutput in {database}:"
            " give another slot=NAME"
        )


def check_followable(config: Config, slot: Slot | None, lsn: int) -> Slot:
    """Raise unless the slot still has everything from a place on."""
    if slot is None:
        raise CaptureError(
            f"the slot {config.slot} of {config.place} is gone, and what happened since {lsn_text(lsn)} with it:"
            f" {_START_OVER}"
        )
    if slot.wal_status == "lost" or slot.reason:
        why = (
            slot.reason.replace("_", " ")
            if slot.reason and slot.reason != "true"
            else "max_slot_wal_keep_size"
        )
        raise CaptureError(
            f"{config.place} has invalidated the slot {config.slot} ({why}), and what happened since {lsn_text(lsn)} is"
            f" lost: {_START_OVER}; a larger max_slot_wal_keep_size keeps more for a capture that is behind"
        )
    if slot.confirmed_lsn > lsn:
        raise CaptureError(
            f"the slot {config.slot} of {config.place} was made anew, or somebody else read from it: it starts at"
            f" {lsn_text(slot.confirmed_lsn)}, and we are at {lsn_text(lsn)}; {_START_OVER}"
        )
    return slot
