"""View stores: rows, their change feed and the epochs that made them, in one transaction.

A view is a table by key. `ViewStore.commit` applies one epoch of one query: the rows it changes, a feed
entry for each row that really changed, and the epoch itself, all or nothing. Replaying an epoch changes
nothing, so a query that is started again after a crash may commit its last epoch once more.

Every change of a view has a token, one higher than the change before; `changes(view, since=token)`
goes on exactly behind it. The feed is bounded: what is older than the store keeps is gone, and
asking for it raises `TokenGone`.

A row with a time-to-live leaves its view when that has run out, and one of a view with history can be read as
it was at a moment. A view is built anew in its `shadow`, and `swap` puts that in its place.

    ViewError             a view, address or file that does not fit
    ├── UnknownView       there is no view of that name
    ├── TokenGone         the feed does not reach back that far: read the rows and go on from their token
    ├── HistoryGone       the history does not reach back that far
    └── StoreUnavailable  the database does not answer now
"""

from __future__ import annotations

from headwater.views.errors import HistoryGone, StoreUnavailable, TokenGone, UnknownView, ViewError
from headwater.views.keys import encode
from headwater.views.outbox import ALERT, Delivery, Outbox, Pacing
from headwater.views.store import (
    OWN,
    Change,
    Condition,
    Query,
    Snapshot,
    StoredChange,
    StoredRow,
    Version,
    ViewDefinition,
    ViewStore,
    open_store,
    shadow_of,
    shown,
)
from headwater.views.times import iso

__all__ = [
    "ALERT",
    "OWN",
    "Change",
    "Condition",
    "Delivery",
    "HistoryGone",
    "Outbox",
    "Pacing",
    "Query",
    "Snapshot",
    "StoreUnavailable",
    "StoredChange",
    "StoredRow",
    "TokenGone",
    "UnknownView",
    "Version",
    "ViewDefinition",
    "ViewError",
    "ViewStore",
    "encode",
    "iso",
    "open_store",
    "shadow_of",
    "shown",
]
