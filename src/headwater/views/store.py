"""What every view store does; `open_store` finds the one that an address names."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import unquote, urlsplit

from headwater.core.clock import Clock, SystemClock
from headwater.views.errors import ViewError
from headwater.views.outbox import Outbox

__all__ = [
    "OWN",
    "SHADOW",
    "Change",
    "Condition",
    "Query",
    "Snapshot",
    "StoredChange",
    "StoredRow",
    "Version",
    "ViewDefinition",
    "ViewStore",
    "open_store",
    "shadow_of",
    "shown",
]

KEEP_CHANGES = 500_000
"""How many changes of each view the feed keeps, for those who were away."""

SHADOW = "~"
"""What the names of shadows start with: views that are built beside the one they will take the place of."""

OWN = "@"
"""What the names of views start with that a server keeps for itself: no application can declare them."""


class Change(NamedTuple):
    """What becomes of a row: its JSON object, or None to delete it."""

    key: str
    row: str | None


class StoredRow(NamedTuple):
    """A row as it stands, and the token of the change that made it so."""

    key: str
    row: str
    token: int


class StoredChange(NamedTuple):
    """An entry of the feed."""

    token: int
    key: str
    row: str | None


class Snapshot(NamedTuple):
    """Rows and the token of the feed at the moment they were read."""

    rows: list[StoredRow]
    token: int


class Version(NamedTuple):
    """What a row was from one moment to another, in milliseconds; `until` is None for what it is."""

    since: int
    until: int | None
    row: str


@dataclass(frozen=True)
class ViewDefinition:
    """A view's name, the columns that make up its key, and what was asked for beside its rows."""

    name: str
    key: tuple[str, ...]
    ttl_ms: int | None = None
    """How long a row stays after it was last written; for ever without it."""
    indexes: tuple[str, ...] = ()
    """The columns by which rows are filtered and ordered without a look at all of them."""
    history_ms: int | None = None
    """How long what a row was before can be asked for; not at all without it."""


class Condition(NamedTuple):
    """That a column is less or greater than a value (`lt`, `lte`, `gt`, `gte`), or one of several (`in`).

    A value that reads as a number is compared with numbers as one, and with texts as a text. Rows without
    the column, and structures, are neither less nor greater than anything.
    """

    column: str
    compare: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Query:
    """Which rows to read, and in which order.

    Without `order` rows come by key, and `after` goes on behind a key; with it, `after` goes on behind the row
    of that key that has `after_value` in the column of the order. `until` leaves out rows that
    changed after that token, so that pages read one after the other belong together: what is left out
    is in the feed since that token. `at`, in milliseconds since the epoch, asks for the rows of a view
    with history as they were at that moment.

    Rows without the column of `order` come first, then numbers, then texts; equal ones by key.
    """

    where: Mapping[str, str] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    order: str | None = None
    descending: bool = False
    after: str | None = None
    after_value: str | float | Decimal | None = None
    until: int | None = None
    at: int | None = None
    limit: int = 1000


class ViewStore(ABC):
    """Views, their feeds, the epochs of the queries that write them, and alerts on their way out.

    A store may be used from several threads and several processes at once; commits of a view happen one at
    a time, and its tokens grow in their order.
    """

    identity: str
    """Tells this store from one that was made anew in its place: tokens of the two have no relation."""

    outbox: Outbox
    """The alerts that are on their way out."""

    @abstractmethod
    def define(self, view: ViewDefinition) -> None:
        """Make a view where there is none, or give it what is asked for; one with rows keeps its key columns."""

    @abstractmethod
    def definitions(self) -> list[ViewDefinition]:
        """Return every view, by name; shadows are not among them."""

    @abstractmethod
    def epoch(self, query: str) -> int:
        """Return the last epoch that a query committed, or -1."""

    @abstractmethod
    def commit(self, query: str, epoch: int, view: str, changes: Iterable[Change]) -> bool:
        """Apply an epoch in one transaction; false, and nothing done, where it was committed before.

        Of several changes of one key the last counts. A row that stays the same makes no entry in the feed.
        """

    @abstractmethod
    def reset(self, query: str, view: str) -> None:
        """Let a query start over: its view is emptied, which the feed tells, and it has no epoch."""

    @abstractmethod
    def expire(self) -> int:
        """Delete the rows whose time has run out, which the feed tells, and return how many those were.

        A commit does this for its own view. Whoever serves views calls it now and then.
        """

    @abstractmethod
    def shadow(self, view: str, query: str) -> str:
        """Make an empty shadow of a view, for a query that has committed nothing, and return its name.

        It takes commits like any view, but has no feed: nobody follows it.
        """

    @abstractmethod
    def swap(self, view: str, *, query: str, shadow_query: str) -> int:
        """Let a shadow's rows take the place of the view's, in one transaction, and return how many differ.

        The feed tells the differences. `query` has then the epoch that `shadow_query` had, and the shadow is
        gone.
        """

    @abstractmethod
    def discard(self, view: str, shadow_query: str) -> None:
        """Forget the shadow of a view, if there is one, and the epoch of its query."""

    @abstractmethod
    def has_shadow(self, view: str) -> bool:
        """Tell whether there is a shadow of a view."""

    @abstractmethod
    def history(self, view: str, key: str, limit: int = 100) -> list[Version]:
        """Return what a row is and was, newest first, as far back as the view's history goes."""

    @abstractmethod
    def read(self, view: str, query: Query = Query()) -> Snapshot:  # it is frozen
        """Return rows, and the token that belongs to them."""

    def rows(self, view: str, *, after: str | None = None, limit: int = 1000) -> list[StoredRow]:
        """Return rows by key, those behind `after`."""
        return self.read(view, Query(after=after, limit=limit)).rows

    @abstractmethod
    def row(self, view: str, key: str) -> StoredRow | None:
        """Return a row, if there is one."""

    @abstractmethod
    def count(self, view: str) -> int:
        """Return how many rows a view has."""

    @abstractmethod
    def token(self, view: str) -> int:
        """Return the token of a view's last change; 0 before the first."""

    @abstractmethod
    def tokens(self) -> dict[str, int]:
        """Return the token of every view's last change, by name."""

    @abstractmethod
    def changes(self, view: str, since: int, limit: int = 1000) -> list[StoredChange]:
        """Return the changes behind a token, or raise `TokenGone`."""

    @abstractmethod
    def version(self) -> int:
        """Return a number that differs after any process committed; cheap enough to ask for often."""

    @abstractmethod
    def put_status(self, name: str, status: str) -> None:
        """Keep what a pipeline says of itself, as JSON."""

    @abstractmethod
    def statuses(self) -> dict[str, str]:
        """Return what pipelines last said, by name."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the store."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def shadow_of(view: str) -> str:
    """Return the name of a view's shadow."""
    return SHADOW + view


def open_store(url: str, *, keep_changes: int = KEEP_CHANGES, clock: Clock | None = None) -> ViewStore:
    """Open the store at an address, which is made where it is missing.

    `sqlite:///relative/path` or `sqlite:////absolute/path`, `postgresql://USER:PASSWORD@HOST/DATABASE`,
    `redis://HOST:PORT/NUMBER`.
    """
    clock = clock or SystemClock()
    parts = urlsplit(url)
    match parts.scheme:
        case "postgresql" | "postgres" if parts.path.strip("/"):
            from headwater.views.postgres import PostgresStore

            return PostgresStore(url, keep_changes=keep_changes, clock=clock)
        case "redis" | "rediss" if parts.hostname:
            from headwater.views.redis import RedisStore

            return RedisStore(url, keep_changes=keep_changes, clock=clock)
        case "sqlite" if not parts.netloc and parts.path[1:] and not parts.query and not parts.fragment:
            from headwater.views.sqlite import SqliteStore

            return SqliteStore(unquote(parts.path[1:]), keep_changes=keep_changes, clock=clock)
    raise ViewError(
        f"{shown(url)} is no address of a view store: write sqlite:///PATH, like sqlite:///views.db, "
        "postgresql://USER:PASSWORD@HOST/DATABASE, or redis://HOST:PORT/NUMBER"
    )


def shown(url: str) -> str:
    """Return an address without its password, as it may be logged.

    >>> shown("postgresql://ann:secret@db/shop"), shown("sqlite:///views.db")
    ('postgresql://ann:***@db/shop', 'sqlite:///views.db')
    """
    scheme, separator, rest = url.partition("://")
    login, at, place = rest.rpartition("@")
    user, colon, _ = login.partition(":")
    place = re.sub(r"(?<=password=)[^&]*", "***", place)
    return f"{scheme}{separator}{user}{':***' if colon else ''}{at}{place}"
