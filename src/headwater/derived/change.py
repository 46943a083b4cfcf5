"""What a store is given: rows by key, and how far in the topic they go."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

from headwater.derived.errors import DerivedError

__all__ = ["Position", "Row"]


class Row(NamedTuple):
    """A row as its record has it."""

    text: str
    """The JSON object, to the letter."""
    values: Mapping[str, Any]
    """What it says; numbers with a point or an exponent are decimals, so that no digit is lost."""


@dataclass(frozen=True)
class Position:
    """How much of a topic a store holds; kept in the store, and changed with its rows at once."""

    topic: str
    topic_id: str = ""
    """A topic that was deleted and made again has another."""
    offsets: Mapping[int, int] = field(default_factory=dict)
    """By partition, the offset to go on from."""
    shape: str = ""
    """What the store was declared with when it was made, where other declarations need another store."""
    unreadable: int = 0
    """How many records said nothing about a row."""

    def encode(self) -> str:
        """Return it as JSON."""
        offsets = {str(partition): offset for partition, offset in sorted(self.offsets.items())}
        return json.dumps(
            {
                "topic": self.topic,
                "topic_id": self.topic_id,
                "offsets": offsets,
                "shape": self.shape,
                "unreadable": self.unreadable,
            }
        )

    @classmethod
    def decode(cls, text: str | bytes) -> Self:
        """Return what `encode` wrote."""
        try:
            said = json.loads(text)
            offsets = {int(partition): int(offset) for partition, offset in said["offsets"].items()}
            return cls(said["topic"], said["topic_id"], offsets, said["shape"], said["unreadable"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DerivedError(
                f"the store's position does not read ({error}): build it anew with `headwater derived rebuild`"
            ) from error

    def moved(self, offsets: Mapping[int, int], unreadable: int = 0) -> Self:
        """Return a later one."""
        return replace(self, offsets={**self.offsets, **offsets}, unreadable=self.unreadable + unreadable)

    def check(self, store: str, topic: str, shape: str) -> None:
        """Refuse to go on with a store that was made of another topic, or with other columns."""
        again = f"build it anew with `headwater derived rebuild APP {store}`"
        if self.topic != topic:
            raise DerivedError(f"{store} holds rows of {self.topic}, and not of {topic}: {again}")
        if self.shape != shape:
            raise DerivedError(f"{store} was made with other columns than it is declared with now: {again}")

    def may_replace(self, live: Position | None) -> bool:
        """Tell whether a store that is this far may take another's place: readers are not to see rows go back."""
        if live is None or (live.topic, live.topic_id) != (self.topic, self.topic_id):
            return True
        return all(self.offsets.get(partition, 0) >= offset for partition, offset in live.offsets.items())
