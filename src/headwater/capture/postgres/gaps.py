"""Fills in large values that an update left alone, which the log does not repeat.

They are asked of the table as it is now. If such a value has changed since, the change of it is on its way, and the
last record of the row is right. A row that is gone by now keeps its gap; its delete is on its way, too.
"""

from __future__ import annotations

from headwater.capture.postgres.connection import Session, quoted, rows
from headwater.capture.postgres.pgoutput import UNCHANGED
from headwater.capture.postgres.transactions import Gap, Transactions
from headwater.capture.postgres.values import NULL

__all__ = ["fill"]


def fill(session: Session, transactions: Transactions) -> None:
    """Complete the rows of the changes that wait, as far as their tables still have them."""
    for gap in transactions.gaps:
        found = _ask(session, gap)
        if found is None:
            continue
        change = transactions.changes[gap.place]
        assert change.after is not None
        after = list(change.after)
        for place, value in found.items():
            after[place] = value
        transactions.changes[gap.place] = change._replace(after=tuple(after))


def _ask(session: Session, gap: Gap) -> dict[int, bytes] | None:
    table, values = gap.table, gap.values
    names = [column.name for column in table.schema.columns]
    missing = [place for place, value in enumerate(values) if value is UNCHANGED]
    keys = [names.index(name) for name in table.schema.key]
    if any(place in missing for place in keys):
        return None
    wanted = ", ".join(f"{_named(names[place])}::text" for place in missing)
    where = " AND ".join(f"{_named(names[place])} = %s" for place in keys)
    told = [(values[place] or b"").decode() for place in keys]
    known = {name for (name,) in rows(session, _COLUMN_NAMES, (table.oid,))}
    if not known.issuperset(names[place] for place in (*missing, *keys)):
        return None  # the table has changed since
    query = f"SELECT {wanted} FROM {_named(table.schema.schema, table.schema.name)} WHERE {where}"
    found = rows(session, query.encode(), told)
    if len(found) != 1:
        return None
    return {
        place: NULL if text is None else table.converts[place](text.encode())
        for place, text in zip(missing, found[0], strict=True)
    }


def _named(*names: str) -> str:
    """Return a name for a query with parameters, in which a percent sign stands for itself when it is doubled."""
    return quoted(*names).replace("%", "%%")


_COLUMN_NAMES = (
    "SELECT attname::text FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped"
)
