"""All stored queries, found by the values and words that they ask for.

Most conjunctions cannot match without one of a few values in a field, or a certain word in a text. Each is filed
under one such thing, the one that the fewest others are filed under (an *access predicate*, as publish and
subscribe systems call it), so that an event meets only those that are filed under its own values and words, and those
that ask for nothing of the kind. What it meets is tested by `BitIndex`, or one by one where it is little.

An event has one value in a field but many words in a text, and to test thousands at once costs little more than to
test twenty. So words are what a conjunction is filed under only where it would find itself in a crowd otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any, Final

from headwater.pipeline.searches.bits import BitIndex
from headwater.pipeline.searches.conjunctions import Conjunction
from headwater.pipeline.searches.fields import Document, Fields

__all__ = ["SearchIndex"]

SEGMENT: Final = 8192
"""So many conjunctions are indexed together: the integers of more would be slow, and a change would cost more."""
FEW: Final = 16
"""So many are tested one by one."""
CROWD: Final = 4 * SEGMENT
"""Where as many are filed, those with words are filed under a word instead."""
MANY_VALUES: Final = 16
"""A conjunction that asks for one of more values than this is not filed under them."""


class _Slot:
    """A conjunction and whose it is."""

    __slots__ = ("conjunction", "places", "query")

    def __init__(self, query: str, conjunction: Conjunction) -> None:
        self.query, self.conjunction = query, conjunction
        self.places: list[_Cluster] = []


class _Segment:
    def __init__(self) -> None:
        self.places: dict[_Slot, int] = {}
        self._slots: list[_Slot | None] = []
        self._indexed = 0
        self._index: BitIndex | None = None

    def add(self, slot: _Slot) -> None:
        self.places[slot] = len(self._slots)
        self._slots.append(slot)

    def remove(self, slot: _Slot) -> None:
        self._slots[self.places.pop(slot)] = None

    @property
    def full(self) -> bool:
        return len(self._slots) >= SEGMENT

    def find(self, document: Document, found: set[str]) -> None:
        new = len(self._slots) - self._indexed
        if new > FEW + self._indexed // 4 or 2 * len(self.places) + FEW < len(self._slots):
            self._rebuild()
        for slot in self._slots[self._indexed :]:
            if slot is not None and slot.query not in found and slot.conjunction.holds(document):
                found.add(slot.query)
        if self._index is None:
            return
        passing = self._index.passing(document)
        unsure = passing & self._index.unsure
        found.update([slot.query for slot in self._at(passing & ~unsure)])
        found.update([slot.query for slot in self._at(unsure) if slot.conjunction.words_hold(document)])

    def _at(self, bits: int) -> list[_Slot]:
        digits = bin(bits)[:1:-1]
        slots = []
        place = digits.find("1")
        while place >= 0:
            slot = self._slots[place]
            if slot is not None:
                slots.append(slot)
            place = digits.find("1", place + 1)
        return slots

    def _rebuild(self) -> None:
        slots = list(self.places)
        self.places = {slot: place for place, slot in enumerate(slots)}
        self._slots = [*slots]
        self._indexed = len(slots) if len(slots) > FEW else 0
        self._index = BitIndex([slot.conjunction for slot in slots]) if self._indexed else None


class _Cluster:
    """What is filed under one thing."""

    def __init__(self, drawer: dict[Any, _Cluster], thing: Hashable) -> None:
        """Lie in a drawer for as long as there is something filed."""
        self._drawer, self._thing = drawer, thing
        self._segments: list[_Segment] = []

    def __len__(self) -> int:
        return sum(len(segment.places) for segment in self._segments)

    def add(self, slot: _Slot) -> None:
        self._drawer[self._thing] = self
        if not self._segments or self._segments[-1].full:
            self._segments.append(_Segment())
        self._segments[-1].add(slot)
        slot.places.append(self)

    def remove(self, slot: _Slot) -> None:
        for segment in self._segments:
            if slot in segment.places:
                segment.remove(slot)
        self._segments = [segment for segment in self._segments if segment.places]
        if not self._segments:
            del self._drawer[self._thing]

    def find(self, document: Document, found: set[str]) -> None:
        for segment in self._segments:
            segment.find(document, found)


class SearchIndex:
    """Queries by name; they come, change and go while events are matched."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._queries: dict[str, list[_Slot]] = {}
        self._everywhere: dict[Any, _Cluster] = {}
        self._by_value: dict[str, dict[Hashable, _Cluster]] = {}
        self._by_word: dict[str, dict[str, _Cluster]] = {}
        self._lengths: dict[str, Counter[int]] = {}
        self._prefixes: dict[str, frozenset[int]] = {}

    def __len__(self) -> int:
        return len(self._queries)

    def put(self, query: str, conjunctions: list[Conjunction]) -> None:
        """Add a query, or replace the one of that name."""
        self.remove(query)
        slots = [_Slot(query, conjunction) for conjunction in conjunctions]
        self._queries[query] = slots
        for slot in slots:
            self._count_prefixes(slot.conjunction, 1)
            for cluster in self._filed_under(slot.conjunction):
                cluster.add(slot)

    def remove(self, query: str) -> None:
        """Remove a query, if it is there."""
        for slot in self._queries.pop(query, ()):
            self._count_prefixes(slot.conjunction, -1)
            for cluster in slot.places:
                cluster.remove(slot)

    def match(self, event: Mapping[str, Any]) -> list[str]:
        """Return the names of the queries that an event matches, in order."""
        document = Document(self._fields, event, self._prefixes)
        found: set[str] = set()
        for cluster in self._everywhere.values():
            cluster.find(document, found)
        for name, by_value in self._by_value.items():
            filed = by_value.get(document.values[name])
            if filed is not None:
                filed.find(document, found)
        for name, by_word in self._by_word.items():
            for key in by_word.keys() & document.keys(name):
                by_word[key].find(document, found)
        return sorted(found)

    def _filed_under(self, conjunction: Conjunction) -> list[_Cluster]:
        """Return where to file a conjunction: under the rarest thing that it cannot match without."""
        values = [
            (self._by_value.setdefault(name, {}), sorted(test.values))
            for name, test in conjunction.tests.items()
            if test.values is not None and not test.missing and len(test.values) <= MANY_VALUES
        ]
        drawer, things = min(values, key=_filed, default=(self._everywhere, [None]))
        if conjunction.required and _filed((drawer, things)) >= CROWD:
            words = [(name, key) for name, term in conjunction.required for key in term.keys]
            choices = [(self._by_word.setdefault(name, {}), [key]) for name, key in sorted(words)]
            drawer, things = min(choices, key=_filed)
        return [drawer.get(thing) or _Cluster(drawer, thing) for thing in things]

    def _count_prefixes(self, conjunction: Conjunction, by: int) -> None:
        for name, term in conjunction.required:
            if term.prefix:
                lengths = self._lengths.setdefault(name, Counter())
                lengths[len(term.words[0])] += by
                self._prefixes[name] = frozenset(+lengths)


def _filed(choice: tuple[dict[Any, _Cluster], list[Any]]) -> int:
    drawer, things = choice
    return sum(len(drawer[thing]) for thing in things if thing in drawer)
