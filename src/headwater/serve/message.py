"""A message to people: what it is about, as JSON for programs and as text for readers."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from headwater.views import Delivery

__all__ = ["Message", "Outcome"]

_LONGEST_VALUE = 500
_LONGEST_SUBJECT = 150
_MOST_ROWS = 200
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


class Outcome(NamedTuple):
    """What became of a try: what went wrong, if anything, and how long the receiver wants to be left alone."""

    error: str | None = None
    retry_after: float | None = None


@dataclass(frozen=True)
class Message:
    """One delivery, or several that go out together; the id is the same at each try."""

    id: str
    alert: str
    deliveries: tuple[Delivery, ...]
    group_by: tuple[str, ...] = ()

    @property
    def tokens(self) -> list[int]:
        """The deliveries that it is made of."""
        return [delivery.token for delivery in self.deliveries]

    def json(self) -> str:
        """Return what a program is sent: of one delivery, with its row as the store holds it."""
        [delivery] = self.deliveries
        fields = [f'"id":{json.dumps(self.id)}', f'"alert":{json.dumps(self.alert)}']
        if self.group_by:
            fields.append(f'"group":{json.dumps(self._group(delivery))}')
        if delivery.held:
            fields.append(f'"held":{delivery.held}')
        return f'{{{",".join(fields)},"row":{delivery.row}}}'

    def subject(self) -> str:
        """Return one line that says what it is about."""
        if len(self.deliveries) > 1:
            text = f"{self.alert}: {len(self.deliveries)} rows"
        else:
            [delivery] = self.deliveries
            about = ", ".join(f"{name} {_shown(value)}" for name, value in self._group(delivery).items())
            more = f"{delivery.held} more" if delivery.held else ""
            text = ": ".join([self.alert, ", ".join(part for part in (about, more) if part)]).rstrip(": ")
        return _clean(text)[:_LONGEST_SUBJECT]

    def text(self) -> str:
        """Return what a person reads: each row as lines of columns and values."""
        parts = []
        [first, *_] = self.deliveries
        if first.held:
            parts.append(f"{first.held} more since the last message; this is the last of them.")
        parts += [_table(json.loads(delivery.row)) for delivery in self.deliveries[:_MOST_ROWS]]
        if len(self.deliveries) > _MOST_ROWS:
            parts.append(f"… and {len(self.deliveries) - _MOST_ROWS} more rows.")
        parts.append(f"-- \nalert {self.alert}, message {self.id}")
        return "\n\n".join(parts) + "\n"

    def _group(self, delivery: Delivery) -> dict[str, Any]:
        columns = json.loads(delivery.row) if self.group_by else {}
        return {column: columns.get(column) for column in self.group_by}


def _table(row: dict[str, Any]) -> str:
    width = min(max(map(len, row), default=0), 40)
    return "\n".join(f"{_clean(name):<{width}}  {_shown(value)}" for name, value in row.items())


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = _clean(text)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"


def _clean(text: str) -> str:
    """Return a text without line breaks and the like, and without halves of surrogate pairs."""
    return _CONTROL.sub(" ", text).encode(errors="replace").decode()
