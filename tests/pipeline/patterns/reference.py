"""What a match is, by definition: every way through the pattern is tried, in order of preference.

Nothing is shared with the engine but the tree of the pattern. It takes time without bound, so inputs are small.

Time goes on after the last row, but without `within` another row may still come: a way that would take it is then
*pending*, and what is less preferred than it cannot be reported.

An arrow at the beginning of a greedy round does not leave out a row that fits what follows the repetition, unless
every match is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from headwater.pipeline.patterns import syntax

Path = tuple[tuple[int, str], ...]
Then = Callable[[int, Path], Iterator[Path]]
Holds = Callable[[int, str, Path], bool]
PENDING: Path = ()
TOOK: Path = ((-1, ""),)


class Reference:
    """Matches of a pattern over rows, given their times and a test of (row, symbol, rows taken before)."""

    def __init__(self, pattern: str, times: list[int], holds: Holds, within: int | None = None) -> None:
        self.tree = syntax.parse(pattern)
        self.times = times
        self.holds = holds
        self.within = within
        self.probing = False
        self.every = False

    def matches(self, start: int) -> Iterator[Path]:
        """All matches that begin with a row, the most preferred first."""
        for path in self.walk(self.tree, start, (), lambda _, path: iter([path])):
            if path == PENDING:
                yield path
                continue
            times = [self.times[row] for row, _ in path]
            if self.within is None or times[-1] - times[0] <= self.within:
                yield path

    def by_skip(self, skip: str) -> list[Path]:
        """The matches that are reported, in the order of their starts."""
        found: list[Path] = []
        self.every = skip == "no skip"
        at = 0
        while at < len(self.times):
            if skip == "no skip":
                found += dict.fromkeys(path for path in self.matches(at) if path != PENDING)
                at += 1
                continue
            path = next(self.matches(at), None)
            if path == PENDING and skip != "to next row":
                break
            if path is not None and path != PENDING:
                found.append(path)
            elif path == PENDING:
                path = None
            at = at + 1 if path is None else self.resume(path, skip)
        return found

    def resume(self, path: Path, skip: str) -> int:
        if skip == "past last row":
            return path[-1][0] + 1
        if skip != "to next row":
            _, which, symbol = skip.split()
            rows = [row for row, name in path if name == symbol]
            if rows:
                return max(rows[0 if which == "first" else -1], path[0][0] + 1)
        return path[0][0] + 1

    def is_any(self, row: int, never: tuple[str, ...], path: Path) -> bool:
        return row < len(self.times) and any(self.holds(row, name, path) for name in never)

    def walk(
        self, node: syntax.Node, row: int, path: Path, then: Then, leave: Then | None = None
    ) -> Iterator[Path]:
        match node:
            case syntax.Symbol(name):
                if row == len(self.times):
                    yield from self.end()
                elif self.holds(row, name, path):
                    yield from iter([TOOK]) if self.probing else then(row + 1, (*path, (row, name)))
            case syntax.Sequence(parts):
                yield from self.sequence(parts, row, path, then, leave)
            case syntax.Alternation(options):
                for option in options:
                    yield from self.walk(option, row, path, then, leave)
            case syntax.Repeat():
                yield from self.repeat(node, 0, row, path, then)
            case syntax.NotNext(never):
                if not self.is_any(row, never, path):
                    yield from then(row, path)
            case syntax.Gap():
                yield from self.gap(node, row, path, then, leave)
            case syntax.Wait(never, micros):
                last = self.times[path[-1][0]]
                window = [at for at in range(row, len(self.times)) if self.times[at] <= last + micros]
                if not any(self.is_any(at, never, path) for at in window):
                    yield from then(row, path)

    def sequence(
        self, parts: tuple[Any, ...], row: int, path: Path, then: Then, leave: Then | None = None
    ) -> Iterator[Path]:
        if not parts:
            return then(row, path)
        return self.walk(
            parts[0], row, path, lambda at, taken: self.sequence(parts[1:], at, taken, then), leave
        )

    def repeat(self, node: syntax.Repeat, done: int, row: int, path: Path, then: Then) -> Iterator[Path]:
        def again(at: int, taken: Path) -> Iterator[Path]:
            if len(taken) == len(path) and done >= node.least:
                return iter([])  # a round beyond the certain ones takes a row
            return self.repeat(node, done + 1, at, taken, then)

        if done < node.least:
            yield from self.walk(node.body, row, path, again)
            return
        if not node.greedy:
            yield from then(row, path)
        if node.most is None or done < node.most:
            leave = then if node.greedy and not self.every else None
            yield from self.walk(node.body, row, path, again, leave)
        if node.greedy:
            yield from then(row, path)

    def gap(self, node: syntax.Gap, row: int, path: Path, then: Then, leave: Then | None) -> Iterator[Path]:
        for at in range(row, len(self.times)):
            if self.is_any(at, node.never, path):
                return
            if self.probing:
                yield from then(at, path)
                return
            if node.any:
                yield from then(at, path)
            elif self.fits(at, path, then):
                yield from then(at, path)
                return
            elif leave is not None and self.fits(at, path, leave):
                return
        yield from self.end()

    def end(self) -> Iterator[Path]:
        return iter([PENDING] if self.within is None else [])

    def fits(self, row: int, path: Path, then: Then) -> bool:
        self.probing = True
        found = any(each == TOOK for each in then(row, path))
        self.probing = False
        return found
