"""The outbox of a view store in Postgres."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.views.outbox import AT_ONCE, KEEP_ROWS, Delivery, Outbox, Pacing
from headwater.views.pacing import Entry, Incident, Paced, group_of, pace
from headwater.views.postgres import catalog
from headwater.views.postgres.database import Cursor, Database
from headwater.views.postgres.feed import FEED

__all__ = ["PostgresOutbox"]

_COLUMNS = "token, key, row::text, tries, next_at, error, held"
_INCIDENT = "name, until, held, token, key, row"


class PostgresOutbox(Outbox):
    """Deliveries in the database of the views."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def take(self, view: str, limit: int = 1000, *, pacing: Pacing = AT_ONCE, now: float = 0.0) -> int:
        """Turn the next entries of an alert's feed, and groups whose quiet time is over, into deliveries."""

        def work(cursor: Cursor) -> int:
            known = catalog.find(cursor, view, lock=True)
            taken = min(known.token, known.taken + limit)
            cursor.execute(
                f"SELECT {_INCIDENT} FROM headwater.incidents WHERE view = %s AND until <= %s"
                " ORDER BY until LIMIT %s",
                (known.number, pacing.due(now), limit),
            )
            incidents = {name: Incident._make(rest) for name, *rest in cursor.fetchall()}
            over = len(incidents)
            if taken == known.taken and not over:
                return 0
            cursor.execute(
                f"SELECT token, key, row FROM ({FEED}) AS feed WHERE row IS NOT NULL ORDER BY token",
                (known.number, known.taken, taken, known.taken, taken),
            )
            entries = [Entry._make(change) for change in cursor.fetchall()]
            if pacing.throttle is not None:
                cursor.execute(
                    f"SELECT {_INCIDENT} FROM headwater.incidents WHERE view = %s AND name = ANY(%s)",
                    (known.number, list({group_of(pacing, entry.row) for entry in entries})),
                )
                incidents |= {name: Incident._make(rest) for name, *rest in cursor.fetchall()}
            _put(cursor, known.number, pace(pacing, now, incidents, entries))
            _forget_rows(cursor, known, taken - KEEP_ROWS)
            cursor.execute("UPDATE headwater.views SET taken = %s WHERE id = %s", (taken, known.number))
            return taken - known.taken + over

        return self._database.write(work)

    def quiet_until(self, view: str) -> float | None:
        """Return when the next quiet time of a group ends, if there is one."""

        def work(cursor: Cursor) -> float | None:
            cursor.execute(
                "SELECT min(until) FROM headwater.incidents WHERE view = %s",
                (catalog.find(cursor, view).number,),
            )
            [until] = cursor.fetchone()
            return None if until is None else float(until)

        return self._database.read(work)

    def waiting(self, view: str, limit: int = 1000) -> list[Delivery]:
        """Return the deliveries that are to be tried, soonest first."""
        return self._list(view, "NOT dead ORDER BY next_at, token LIMIT %s", limit)

    def dead(self, view: str, limit: int = 1000) -> list[Delivery]:
        """Return the deliveries that were given up, newest first."""
        return self._list(view, "dead ORDER BY token DESC LIMIT %s", limit)

    def counts(self, view: str) -> tuple[int, int]:
        """Return how many messages wait, taken or not, and how many were given up."""

        def work(cursor: Cursor) -> tuple[int, int]:
            known = catalog.find(cursor, view)
            cursor.execute(
                f"SELECT count(*) FROM ({FEED}) AS feed WHERE row IS NOT NULL",
                (known.number, known.taken, known.token, known.taken, known.token),
            )
            [untaken] = cursor.fetchone()
            cursor.execute(
                "SELECT count(*) FILTER (WHERE NOT dead), count(*) FILTER (WHERE dead)"
                " FROM headwater.deliveries WHERE view = %s",
                (known.number,),
            )
            waiting, dead = cursor.fetchone()
            cursor.execute(
                "SELECT count(*) FROM headwater.incidents WHERE view = %s AND held > 0", (known.number,)
            )
            [held] = cursor.fetchone()
            return untaken + waiting + held, dead

        return self._database.read(work)

    def delivered(self, view: str, tokens: Sequence[int]) -> None:
        """Forget deliveries that arrived."""

        def work(cursor: Cursor) -> None:
            cursor.execute(
                "DELETE FROM headwater.deliveries WHERE view = %s AND token = ANY(%s)",
                (catalog.find(cursor, view).number, list(tokens)),
            )

        self._database.write(work)

    def failed(self, view: str, tokens: Sequence[int], *, error: str, next_at: float | None) -> None:
        """Note that a try failed."""

        def work(cursor: Cursor) -> None:
            cursor.execute(
                "UPDATE headwater.deliveries SET tries = tries + 1, error = %s, dead = %s, next_at = %s"
                " WHERE view = %s AND token = ANY(%s)",
                (error, next_at is None, next_at or 0, catalog.find(cursor, view).number, list(tokens)),
            )

        self._database.write(work)

    def redrive(self, view: str) -> int:
        """Try those again that were given up."""

        def work(cursor: Cursor) -> int:
            cursor.execute(
                "UPDATE headwater.deliveries SET dead = false, tries = 0, next_at = 0"
                " WHERE view = %s AND dead",
                (catalog.find(cursor, view).number,),
            )
            return int(cursor.rowcount)

        return self._database.write(work)

    def _list(self, view: str, condition: str, limit: int) -> list[Delivery]:
        def work(cursor: Cursor) -> list[Delivery]:
            cursor.execute(
                f"SELECT {_COLUMNS} FROM headwater.deliveries WHERE view = %s AND {condition}",
                (catalog.find(cursor, view).number, limit),
            )
            return [Delivery._make(row) for row in cursor.fetchall()]

        return self._database.read(work)


def _put(cursor: Cursor, view: int, paced: Paced) -> None:
    made = [(each.token, each.key, each.row, each.next_at, each.held) for each in paced.deliveries]
    if made:
        cursor.execute(
            "INSERT INTO headwater.deliveries (view, token, key, row, next_at, held)"
            " SELECT %s, token, key, row::json, next_at, held"
            " FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::float8[], %s::bigint[])"
            " AS made (token, key, row, next_at, held)",
            (view, *(list(column) for column in zip(*made, strict=True))),
        )
    quiet = [(name, *each) for name, each in paced.incidents.items() if each is not None]
    if quiet:
        cursor.execute(
            f"INSERT INTO headwater.incidents (view, {_INCIDENT}) SELECT %s, *"
            " FROM unnest(%s::text[], %s::float8[], %s::bigint[], %s::bigint[], %s::text[], %s::text[])"
            " ON CONFLICT (view, name) DO UPDATE SET until = excluded.until, held = excluded.held,"
            " token = excluded.token, key = excluded.key, row = excluded.row",
            (view, *(list(column) for column in zip(*quiet, strict=True))),
        )
    over = [name for name, incident in paced.incidents.items() if incident is None]
    if over:
        cursor.execute("DELETE FROM headwater.incidents WHERE view = %s AND name = ANY(%s)", (view, over))


def _forget_rows(cursor: Cursor, view: catalog.View, until: int) -> None:
    """Cut an alert's rows and feed, which would grow with every message ever sent."""
    if until <= 0:
        return
    cursor.execute(f"DELETE FROM {view.table} WHERE token <= %s", (until,))
    gone = cursor.rowcount
    cursor.execute("DELETE FROM headwater.changes WHERE view = %s AND last <= %s", (view.number, until))
    cursor.execute(
        "UPDATE headwater.views SET rows = rows - %s, floor = greatest(floor, %s) WHERE id = %s",
        (gone, until, view.number),
    )
