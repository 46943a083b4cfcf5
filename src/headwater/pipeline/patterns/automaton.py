"""A pattern as instructions, and from each of them what may be done with the next row, in order of preference.

A *thread* is a place (a `Take`, `Gap` or `Hold`) and a mask of symbols that the next row must not be.
`Automaton.after[place]` lists the threads from there, the most preferred first: greedy repetition before what
follows it, the left alternative before the right. `ACCEPT` among them says that a match may end; what stands
behind it is less preferred than that match. This order is the preferment of SQL:2016.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from headwater.pipeline.patterns import syntax
from headwater.pipeline.patterns.errors import PatternError

__all__ = ["ACCEPT", "Automaton", "Gap", "Hold", "Take", "Thread", "compile_pattern"]

ACCEPT: Final = 0
"""The place at which a match is complete."""
_LARGEST: Final = 5000
_SYMBOLS: Final = 60  # as bits of one number

Thread = tuple[int, int]
"""A place, and the symbols, as a mask, that must not hold for the next row."""


@dataclass(frozen=True)
class Take:
    """Take a row for which a symbol holds."""

    symbol: int
    then: int


@dataclass(frozen=True)
class Gap:
    """Leave rows out until one fits; it ends the run if one of `never` holds for a row, also for the one that fits.

    At the beginning of a greedy round, `leave` is where the repetition goes on without it (or -1): a row that fits
    there is not left out, or a match would have to wait for rounds that may yet come.
    """

    any: bool
    never: int
    then: int
    leave: int
    position: int = field(compare=False)


@dataclass(frozen=True)
class Hold:
    """Wait for some time after the last row; it ends the run if one of `never` holds for a row in it."""

    never: int
    micros: int
    then: int
    position: int = field(compare=False)


@dataclass(frozen=True)
class _Not:
    never: int
    then: int
    position: int = field(compare=False)


@dataclass(frozen=True)
class _Round:
    """The beginning of a round of a repetition that must not be empty: one beyond those that are certain."""

    then: int


@dataclass(frozen=True)
class _RoundOver:
    """The end of such a round, which is `began` at another place."""

    began: int
    then: int


@dataclass(frozen=True)
class _Split:
    options: tuple[int, ...]


_Instruction = Take | Gap | Hold | _Not | _Round | _RoundOver | _Split


@dataclass(frozen=True)
class Automaton:
    """A compiled pattern; it is the same for the same text, so places may be kept in state."""

    symbols: tuple[str, ...]
    places: tuple[Take | Gap | Hold | None, ...]
    """What is done at a place; None where threads only pass through, and at `ACCEPT`."""
    start: tuple[Thread, ...]
    after: dict[int, tuple[Thread, ...]]
    """The threads at each place that a `Take` or `Gap` leads to."""
    leaving: dict[int, tuple[Thread, ...]]
    """What a row would be taken for at each place that a `Gap` names as `leave`."""

    @property
    def has_gaps(self) -> bool:
        """Whether rows between those of a match may be left out."""
        return any(isinstance(place, Gap) for place in self.places)

    @property
    def has_holds(self) -> bool:
        """Whether time alone can complete a match."""
        return any(isinstance(place, Hold) for place in self.places)


def compile_pattern(text: str) -> Automaton:
    """Return the automaton of a pattern, or raise `PatternError`.

    >>> compile_pattern("A B | A").symbols
    ('A', 'B')
    """
    tree = syntax.parse(text)
    symbols = list(dict.fromkeys(syntax.names(tree)))
    if len(symbols) > _SYMBOLS:
        raise PatternError(f"the pattern has {len(symbols)} symbols; {_SYMBOLS} are allowed")
    compiler = _Compiler(text, symbols)
    return compiler.finish(compiler.add(tree, ACCEPT))


class _Compiler:
    def __init__(self, text: str, symbols: list[str]) -> None:
        self._text = text
        self._symbols = {name: number for number, name in enumerate(symbols)}
        self._code: list[_Instruction | None] = [None]

    def add(self, node: syntax.Node, then: int, leave: int = -1) -> int:
        """Add the instructions of a node that goes on at `then`, and return where it begins."""
        match node:
            case syntax.Symbol(name):
                return self._put(Take(self._symbols[name], then))
            case syntax.Sequence(parts):
                for part in reversed(parts[1:]):
                    then = self.add(part, then)
                return self.add(parts[0], then, leave)
            case syntax.Alternation(options):
                return self._put(_Split(tuple([self.add(option, then, leave) for option in options])))
            case syntax.Repeat():
                return self._repeat(node, then)
            case syntax.Gap(any=every, never=never, position=position):
                return self._put(Gap(every, self._mask(never), then, leave, position))
            case syntax.NotNext(never=never, position=position):
                return self._put(_Not(self._mask(never), then, position))
            case syntax.Wait(never=never, micros=micros, position=position):
                return self._put(Hold(self._mask(never), micros, then, position))

    def finish(self, entry: int) -> Automaton:
        """Check what only the whole shows, and return the automaton."""
        start = self._threads(entry)
        if any(place == ACCEPT for place, _ in start):
            raise PatternError.at(
                self._text,
                0,
                "the pattern can match no rows at all; make a part of it certain, as in A+ for A*",
            )
        after = {}
        for place in self._code:
            if isinstance(place, Take | Gap | Hold):
                after[place.then] = self._threads(place.then)
        for position, _ in start:
            place = self._code[position]
            if isinstance(place, Gap | Hold):
                self._refuse(
                    place.position, "a match cannot begin with an arrow; name the row that it begins with"
                )
        for place in self._code:
            if isinstance(place, Gap):
                self._check_gap(place, after[place.then])
            elif isinstance(place, Hold) and after[place.then] != ((ACCEPT, 0),):
                self._refuse(
                    place.position, "`for` is for the end of a pattern; write `-> !B -> C` for none before C"
                )
        for place in self._code:
            if isinstance(place, _Not) and any(at == ACCEPT for at, _ in self._threads(place.then)):
                self._refuse(
                    place.position,
                    "no row is sure to follow this negation; say for how long, as in `-> !B for 5 minutes`",
                )
        places = tuple([place if isinstance(place, Take | Gap | Hold) else None for place in self._code])
        leaving = {
            place.leave: self._takes(place.leave)
            for place in self._code
            if isinstance(place, Gap) and place.leave >= 0
        }
        return Automaton(tuple(self._symbols), places, start, after, leaving)

    def _takes(self, place: int) -> tuple[Thread, ...]:
        """Return the threads at a place that take a row, at once or at the end of a gap."""
        found: list[Thread] = []
        for at, never in self._threads(place):
            there = self._code[at]
            if isinstance(there, Gap):
                found += [(take, never | there.never | more) for take, more in self._threads(there.then)]
            elif isinstance(there, Take):
                found.append((at, never))
        return tuple(found)

    def _check_gap(self, gap: Gap, following: tuple[Thread, ...]) -> None:
        places = [self._code[place] for place, _ in following]
        if any(isinstance(place, Gap | Hold) for place in places):
            self._refuse(gap.position, "this arrow may lead straight to another; put a symbol between them")
        if not all(isinstance(place, Take) for place in places):
            self._refuse(
                gap.position,
                "what follows this arrow can be empty; put the arrow inside, as in A (-> B)* for A -> B*",
            )

    def _repeat(self, node: syntax.Repeat, then: int) -> int:
        least, most = node.least, node.most
        if most is None:
            again = self._put(_Split(()))
            body = self._round(node.body, again, then if node.greedy else -1)
            self._code[again] = _Split((body, then) if node.greedy else (then, body))
            # The last of the certain rounds can be the loop's own, unless the two differ: in being empty, or in
            # what ends the gap that they begin with.
            if least and not _nullable(node.body) and not _begins_with_gap(node.body):
                then, least = body, least - 1
            else:
                then = again
        else:
            rest = then
            for _ in range(most - least):
                body = self._round(node.body, rest, then if node.greedy else -1)
                rest = self._put(_Split((body, then) if node.greedy else (then, body)))
            then = rest
        for _ in range(least):
            then = self.add(node.body, then)
        return then

    def _round(self, body: syntax.Node, then: int, leave: int) -> int:
        """Add a round that takes a row: an empty one would only repeat what the repetition is at already."""
        if not _nullable(body):
            return self.add(body, then, leave)
        began = self._put(_Round(0))
        entry = self.add(body, self._put(_RoundOver(began, then)), leave)
        self._code[began] = _Round(entry)
        return began

    def _threads(self, place: int) -> tuple[Thread, ...]:
        found: dict[Thread, None] = {}
        seen = set()
        nothing: frozenset[int] = frozenset()
        stack = [(place, 0, nothing)]
        while stack:
            at, never, empty = current = stack.pop()  # empty: the rounds that have taken no row yet
            if current in seen:
                continue
            seen.add(current)
            if len(seen) > _LARGEST:
                raise PatternError("repetitions of what can be empty are nested too deep; write it flatter")
            match self._code[at]:
                case _Split(options):
                    stack += [(option, never, empty) for option in reversed(options)]
                case _Not(mask, then):
                    stack.append((then, never | mask, empty))
                case _Round(then):
                    stack.append((then, never, empty | {at}))
                case _RoundOver(began, then):
                    if began not in empty:
                        stack.append((then, never, empty))
                case _:
                    found[at, never] = None
        return tuple(found)

    def _put(self, instruction: _Instruction) -> int:
        if len(self._code) >= _LARGEST:
            raise PatternError(
                f"the pattern unfolds into more than {_LARGEST} steps; use smaller numbers in its {{n,m}}"
            )
        self._code.append(instruction)
        return len(self._code) - 1

    def _mask(self, names: tuple[str, ...]) -> int:
        mask = 0
        for name in names:
            mask |= 1 << self._symbols[name]
        return mask

    def _refuse(self, position: int, what: str) -> None:
        raise PatternError.at(self._text, position, what)


def _nullable(node: syntax.Node) -> bool:
    match node:
        case syntax.Sequence(parts):
            return all(_nullable(part) for part in parts)
        case syntax.Alternation(options):
            return any(_nullable(option) for option in options)
        case syntax.Repeat(body, least, _, _):
            return least == 0 or _nullable(body)
        case syntax.NotNext() | syntax.Gap():
            return True
        case _:
            return False


def _begins_with_gap(node: syntax.Node) -> bool:
    match node:
        case syntax.Sequence(parts):
            return _begins_with_gap(parts[0])
        case syntax.Alternation(options):
            return any(_begins_with_gap(option) for option in options)
        case _:
            return isinstance(node, syntax.Gap)
