"""A view as a database knows it, with the columns that every store in SQL has."""

from __future__ import annotations

import json
from dataclasses import dataclass

from headwater.views.store import ViewDefinition

__all__ = ["COLUMNS", "View"]

COLUMNS = "id, name, key, token, floor, rows, at, ttl, indexes, history, history_since"


@dataclass(frozen=True, slots=True)
class View:
    """A row of the table of views: what `COLUMNS` selects."""

    number: int
    name: str
    key: str
    token: int
    floor: int
    rows: int
    at: int
    ttl: int | None
    indexes: str
    history: int | None
    history_since: int | None

    @property
    def definition(self) -> ViewDefinition:
        """Return what was declared."""
        key, indexes = tuple(json.loads(self.key)), tuple(json.loads(self.indexes))
        return ViewDefinition(self.name, key, self.ttl, indexes, self.history)
