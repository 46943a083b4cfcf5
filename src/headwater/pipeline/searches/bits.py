"""Many conjunctions tested at once: one bit of an integer for each.

For every field an event's value says which conjunctions fail: those that ask for other values, those whose bounds
it is outside of, those that want it missing. Each of these sets is one integer that was made beforehand, found in a
dictionary or by bisection; a field costs a few operations on integers of as many bits as there are conjunctions,
instead of a test for each.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from headwater.pipeline.searches.conjunctions import Conjunction, Test
from headwater.pipeline.searches.fields import Document

__all__ = ["BitIndex"]

_STRIDE: Final = 16


class _Bounds:
    """The bounds of one field and direction, in order, and the bits of all that come before each 16th of them."""

    def __init__(self, bounds: list[tuple[tuple[Any, int], int]]) -> None:
        bounds.sort(key=lambda bound: bound[0])
        self.bounds = [bound for bound, _ in bounds]
        self._bits = [bit for _, bit in bounds]
        self._before = [0]
        for start in range(0, len(bounds), _STRIDE):
            self._before.append(_union(self._bits[start : start + _STRIDE], self._before[-1]))
        self.all = self._before[-1]

    def before(self, place: int) -> int:
        """Return the bits of the first bounds."""
        block = place // _STRIDE
        return _union(self._bits[block * _STRIDE : place], self._before[block])


@dataclass
class _Field:
    """What the conjunctions ask of one field."""

    need_value: int = 0
    need_none: int = 0
    ask_values: int = 0
    by_value: dict[Any, int] = field(default_factory=dict)
    by_excluded: dict[Any, int] = field(default_factory=dict)
    lows: _Bounds | None = None
    highs: _Bounds | None = None

    def add(self, test: Test, bit: int) -> None:
        """Add the test of the conjunction with this bit; its bounds are added by themselves."""
        if not test.missing:
            self.need_value |= bit
        if not test.present:
            self.need_none |= bit
        if test.values is not None:
            self.ask_values |= bit
        for value in test.values or ():
            self.by_value[value] = self.by_value.get(value, 0) | bit
        for value in test.excluded:
            self.by_excluded[value] = self.by_excluded.get(value, 0) | bit

    def failing(self, value: Any) -> int:
        """Return the conjunctions that a value does not pass."""
        if value is None:
            return self.need_value
        failing = self.need_none
        if self.ask_values:
            failing |= self.ask_values & ~self.by_value.get(value, 0)
        if self.by_excluded:
            failing |= self.by_excluded.get(value, 0)
        if self.lows is not None:
            lows = self.lows
            failing |= lows.all & ~lows.before(bisect_right(lows.bounds, (value, 0)))
        if self.highs is not None:
            failing |= self.highs.before(bisect_left(self.highs.bounds, (value, 0)))
        return failing


@dataclass
class _Words:
    """One required word of each conjunction that has so many: its first ones, its second ones, and so on."""

    asking: int = 0
    by_key: dict[str, int] = field(default_factory=dict)

    def failing(self, keys: set[str]) -> int:
        """Return the conjunctions whose word is not there."""
        return self.asking & ~_union([self.by_key[key] for key in self.by_key.keys() & keys])


class BitIndex:
    """Conjunctions that were there when it was made."""

    def __init__(self, conjunctions: Sequence[Conjunction]) -> None:
        self._all = (1 << len(conjunctions)) - 1
        self._fields: dict[str, _Field] = {}
        self._words: dict[str, list[_Words]] = {}
        self.unsure = 0
        """Those that have phrases or words that must not be there: for them `Conjunction.words_hold` decides."""
        lows: dict[str, list[tuple[tuple[Any, int], int]]] = {}
        highs: dict[str, list[tuple[tuple[Any, int], int]]] = {}
        for place, conjunction in enumerate(conjunctions):
            bit = 1 << place
            for name, test in conjunction.tests.items():
                self._fields.setdefault(name, _Field()).add(test, bit)
                if test.low is not None:
                    lows.setdefault(name, []).append((test.low, bit))
                if test.high is not None:
                    highs.setdefault(name, []).append((test.high, bit))
            self._add_words(conjunction, bit)
        for name, each in self._fields.items():
            each.lows = _Bounds(lows[name]) if name in lows else None
            each.highs = _Bounds(highs[name]) if name in highs else None

    def _add_words(self, conjunction: Conjunction, bit: int) -> None:
        keys: dict[str, set[str]] = {}
        for name, term in conjunction.required:
            keys.setdefault(name, set()).update(term.keys)
        for name, wanted in keys.items():
            layers = self._words.setdefault(name, [])
            while len(layers) < len(wanted):
                layers.append(_Words())
            for layer, key in zip(layers, sorted(wanted), strict=False):
                layer.asking |= bit
                layer.by_key[key] = layer.by_key.get(key, 0) | bit
        if conjunction.forbidden or any(len(term.words) > 1 for _, term in conjunction.required):
            self.unsure |= bit

    def passing(self, document: Document) -> int:
        """Return the bits of the conjunctions that an event passes, but for those that are `unsure`."""
        failing = 0
        values = document.values
        for name, each in self._fields.items():
            failing |= each.failing(values[name])
        for name, layers in self._words.items():
            keys = document.keys(name)
            for layer in layers:
                failing |= layer.failing(keys)
        return self._all & ~failing


def _union(bits: Sequence[int], start: int = 0) -> int:
    for bit in bits:
        start |= bit
    return start
