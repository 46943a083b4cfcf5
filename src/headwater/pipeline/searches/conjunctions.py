"""A query as alternatives, each of them a conjunction of tests of fields and words.

An event matches if it passes every test of one of them. `not` is pushed down to the tests, so that an index can look
for what has to be there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from headwater.pipeline.searches.fields import Document
from headwater.pipeline.searches.words import Term

__all__ = ["ALTERNATIVES", "ANY", "MISSING", "Conjunction", "Test", "TooMany", "both", "either"]

ALTERNATIVES: Final = 256
"""A query with more alternatives than this, multiplied out, is refused."""


class TooMany(ValueError):
    """A query has more than `ALTERNATIVES` alternatives."""


@dataclass(frozen=True)
class Test:
    """What is asked of one field.

    Bounds are pairs, so that they compare as they are: (5, 0) is >= 5 or <= 5, (5, 1) is > 5, and (5, -1) is < 5.
    """

    __test__ = False  # for pytest it is none

    values: frozenset[Any] | None = None
    excluded: frozenset[Any] = frozenset()
    low: tuple[Any, int] | None = None
    high: tuple[Any, int] | None = None
    present: bool = True
    """Whether a value that is there may pass."""
    missing: bool = False
    """Whether a value that is missing passes."""

    def holds(self, value: Any) -> bool:
        """Whether a value passes."""
        if value is None:
            return self.missing
        return (
            self.present
            and (self.values is None or value in self.values)
            and value not in self.excluded
            and (self.low is None or (value, 0) >= self.low)
            and (self.high is None or (value, 0) <= self.high)
        )

    def complement(self) -> Test:
        """Return what passes where this does not; it has one condition, as queries are read."""
        missing = not self.missing
        if self.values is not None:
            return Test(excluded=self.values, missing=missing)
        if self.excluded:
            return Test(values=self.excluded, missing=missing)
        if self.low is not None:
            return Test(high=(self.low[0], self.low[1] - 1), missing=missing)
        if self.high is not None:
            return Test(low=(self.high[0], self.high[1] + 1), missing=missing)
        return Test(present=not self.present, missing=missing)

    def also(self, other: Test) -> Test:
        """Return what passes both."""
        values = self.values if other.values is None else other.values
        if self.values is not None and other.values is not None:
            values = self.values & other.values
        lows = [bound for bound in (self.low, other.low) if bound is not None]
        highs = [bound for bound in (self.high, other.high) if bound is not None]
        low, high = max(lows, default=None), min(highs, default=None)
        present = self.present and other.present and (values is None or bool(values))
        if low is not None and high is not None and low > high:
            present = False
        missing = self.missing and other.missing
        return Test(values, self.excluded | other.excluded, low, high, present, missing)

    @property
    def possible(self) -> bool:
        """Whether anything passes."""
        return self.present or self.missing


ANY: Final = Test()
MISSING: Final = Test(present=False, missing=True)


@dataclass(frozen=True)
class Conjunction:
    """Tests of fields, and words that have to be, or must not be, in texts."""

    tests: dict[str, Test] = field(default_factory=dict)
    required: frozenset[tuple[str, Term]] = frozenset()
    forbidden: frozenset[tuple[str, Term]] = frozenset()

    def holds(self, document: Document) -> bool:
        """Whether an event passes all tests."""
        values = document.values
        for name, test in self.tests.items():
            if not test.holds(values[name]):
                return False
        return self.words_hold(document)

    def words_hold(self, document: Document) -> bool:
        """Whether an event has the words."""
        return all(document.holds(*word) for word in self.required) and not any(
            document.holds(*word) for word in self.forbidden
        )

    def also(self, other: Conjunction) -> Conjunction:
        """Return what passes both."""
        tests = dict(self.tests)
        for name, test in other.tests.items():
            tests[name] = tests[name].also(test) if name in tests else test
        return Conjunction(tests, self.required | other.required, self.forbidden | other.forbidden)

    @property
    def possible(self) -> bool:
        """Whether any event can pass, as far as fields tell."""
        return all(test.possible for test in self.tests.values()) and not self.required & self.forbidden


def either(parts: Iterable[list[Conjunction]]) -> list[Conjunction]:
    """Return the alternatives of several queries; several values of one field are one alternative."""
    united: dict[str, frozenset[Any]] = {}
    others: list[Conjunction] = []
    for each in (conjunction for part in parts for conjunction in part):
        values = _only_values(each)
        if values is None:
            others.append(each)
        else:
            united[values[0]] = united.get(values[0], frozenset()) | values[1]
    return _limited([*(Conjunction({name: Test(values)}) for name, values in united.items()), *others])


def both(one: list[Conjunction], other: list[Conjunction]) -> list[Conjunction]:
    """Return the alternatives of two queries that both have to match."""
    if len(one) * len(other) > ALTERNATIVES:
        raise TooMany
    return [merged for a in one for b in other if (merged := a.also(b)).possible]


def _only_values(conjunction: Conjunction) -> tuple[str, frozenset[Any]] | None:
    if len(conjunction.tests) != 1 or conjunction.required or conjunction.forbidden:
        return None
    [(name, test)] = conjunction.tests.items()
    return (name, test.values) if test.values and replace(test, values=None) == ANY else None


def _limited(conjunctions: list[Conjunction]) -> list[Conjunction]:
    if len(conjunctions) > ALTERNATIVES:
        raise TooMany
    return conjunctions
