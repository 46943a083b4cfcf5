"""What every view store does; `open_store` finds the one that an address names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import unquote, urlsplit

from headwater.views.errors import ViewError
from headwater.views.outbox import Outbox

__all__ = [
    "Change",
    "Query",
    "Snapshot",
    "StoredChange",
    "StoredRow",
    "ViewDefinition",
    "ViewStore",
    "open_store",
]

KEEP_CHANGES = 500_000
"""How many changes of each view the feed keeps, for those who were away."""


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


@dataclass(frozen=True)
class ViewDefinition:
    """A view's name and the columns that make up its key."""

    name: str
    key: tuple[str, ...]


@dataclass(frozen=True)
class Query:
    """Which rows to read, and in which order.

    Without `order` rows come by key, and `after` goes on behind a key. `until` leaves out rows that
    changed after that token, so that pages read one after the other belong together: what is left out
    is in the feed since that token.
    """

    where: Mapping[str, str] = field(default_factory=dict)
    order: str | None = None
    descending: bool = False
    after: str | None = None
    until: int | None = None
    limit: int = 1000


class ViewStore(ABC):
    """Views, their feeds, the epochs of the queries that write them, and alerts on their way out.

    A store may be used from several threads and several processes at once; commits happen one at a time.
    """

    identity: str
    """Tells this store from one that was made anew in its place: tokens of the two have no relation."""

    outbox: Outbox
    """The alerts that are on their way out."""

    @abstractmethod
    def define(self, view: ViewDefinition) -> None:
        """Make a view where there is none; a view with rows keeps its key columns."""

    @abstractmethod
    def definitions(self) -> list[ViewDefinition]:
        """Return every view, by name."""

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
    def read(self, view: str, query: Query = Query()) -> Snapshot:  # noqa: B008  # it is frozen
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


def open_store(url: str, *, keep_changes: int = KEEP_CHANGES) -> ViewStore:
    """Open the store at an address: `sqlite:///relative/path` or `sqlite:////absolute/path`."""
    parts = urlsplit(url)
    path = unquote(parts.path[1:])
    if parts.scheme != "sqlite" or parts.netloc or not path or parts.query or parts.fragment:
        raise ViewError(f"{url} is no address of a view store: write sqlite:///PATH, like sqlite:///views.db")
    from headwater.views.sqlite import SqliteStore

    return SqliteStore(path, keep_changes=keep_changes)
