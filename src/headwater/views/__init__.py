"""View stores: rows, their change feed and the epochs that made them, in one transaction.

A view is a table by key. `ViewStore.commit` applies one epoch of one query: the rows it changes, a feed
entry for each row that really changed, and the epoch itself, all or nothing. Replaying an epoch changes
nothing, so a query that is started again after a crash may commit its last epoch once more.

Every change of a view has a token, one higher than the change before; `changes(view, since=token)`
goes on exactly behind it. The feed is bounded: what is older than the store keeps is gone, and
asking for it raises `TokenGone`.

    ViewError          a view, address or file that does not fit
    ├── UnknownView    there is no view of that name
    └── TokenGone      the feed does not reach back that far: read the rows and go on from their token
"""

from __future__ import annotations

from headwater.views.errors import TokenGone, UnknownView, ViewError
from headwater.views.keys import encode
from headwater.views.outbox import ALERT, Delivery, Outbox
from headwater.views.store import (
    Change,
    Query,
    Snapshot,
    StoredChange,
    StoredRow,
    ViewDefinition,
    ViewStore,
    open_store,
)

__all__ = [
    "ALERT",
    "Change",
    "Delivery",
    "Outbox",
    "Query",
    "Snapshot",
    "StoredChange",
    "StoredRow",
    "TokenGone",
    "UnknownView",
    "ViewDefinition",
    "ViewError",
    "ViewStore",
    "encode",
    "open_store",
]
