"""The pattern language: symbols in sequence, alternatives, repetition, gaps and what must not happen.

    A B          B is the row right after A
    A -> B       B is the next row that is B; others between are left out
    A ->> B      B is any later row that is B
    A | B        A, or else B
    ( … )        a group
    *  +  ?  {n}  {n,}  {n,m}  {,m}      as often as possible; with a further ? as seldom as possible
    A !B C       the row after A is C, and not B
    A -> !B -> C no B from A on until C, nor is that row B
    A -> !B for 5 minutes                no B in the five minutes after A; at the end of a pattern only

An arrow belongs to what follows it, so `A (-> A){2,}` is three or more A with other rows between them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, NoReturn

from headwater.app.durations import milliseconds
from headwater.core.errors import SettingError
from headwater.pipeline.patterns.errors import PatternError

__all__ = ["Alternation", "Gap", "Node", "NotNext", "Repeat", "Sequence", "Symbol", "Wait", "names", "parse"]

_TOKEN: Final = re.compile(r"\s*(?:(->>|->|[!|(){},*+?])|([A-Za-z_]\w*)|(\d+))")
_LONGEST_TEXT: Final = 10_000
_DEEPEST: Final = 50
_MOST: Final = 1000
_QUANTIFIERS: Final = {"*": (0, None), "+": (1, None), "?": (0, 1)}


@dataclass(frozen=True)
class Symbol:
    """One row for which a symbol holds."""

    name: str


@dataclass(frozen=True)
class Sequence:
    """One after the other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Alternation:
    """The first of these that leads to a match."""

    options: tuple[Node, ...]


@dataclass(frozen=True)
class Repeat:
    """Several times the same, greedy or reluctant; `most` None is without end."""

    body: Node
    least: int
    most: int | None
    greedy: bool


@dataclass(frozen=True)
class Gap:
    """Rows that are left out: up to the next that fits, or with `any` also those that would fit."""

    any: bool
    never: tuple[str, ...] = ()
    position: int = field(default=0, compare=False)


@dataclass(frozen=True)
class NotNext:
    """The next row is none of these."""

    never: tuple[str, ...]
    position: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Wait:
    """Some time, from the last row on, without any of these."""

    never: tuple[str, ...]
    micros: int
    position: int = field(default=0, compare=False)


Node = Symbol | Sequence | Alternation | Repeat | Gap | NotNext | Wait


def parse(text: str) -> Node:
    """Return the tree of a pattern, or raise `PatternError` with the place and the way out.

    >>> parse("small{3,} large").parts[1]
    Symbol(name='large')
    """
    if not isinstance(text, str) or not text.strip():
        raise PatternError(f'{text!r} is no pattern; name symbols in order, as in "small{{3,}} large"')
    if len(text) > _LONGEST_TEXT:
        raise PatternError(f"the pattern has {len(text)} characters; {_LONGEST_TEXT} are allowed")
    return _Parser(text).pattern()


def names(node: Node) -> list[str]:
    """Return the symbols of a pattern in the order of the text, each as often as it stands there."""
    match node:
        case Symbol(name):
            return [name]
        case Sequence(parts) | Alternation(parts):
            return [name for part in parts for name in names(part)]
        case Repeat(body):
            return names(body)
        case Gap() | NotNext() | Wait():
            return list(node.never)


@dataclass(frozen=True)
class _Token:
    text: str
    position: int
    kind: str  # "mark", "name", "number" or "end"


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split()
        self._next = 0
        self._depth = 0

    def pattern(self) -> Node:
        node = self._alternation()
        if self._peek.text == ")":
            self._refuse("this ) closes no group; leave it out")
        return node

    def _split(self) -> list[_Token]:
        tokens, position, end = [], 0, len(self._text.rstrip())
        while position < end:
            found = _TOKEN.match(self._text, position)
            if found is None:
                at = position + len(self._text[position:]) - len(self._text[position:].lstrip())
                raise PatternError.at(self._text, at, _odd(self._text[at]))
            kind = "mark" if found[1] else "name" if found[2] else "number"
            start = found.start(found.lastindex or 0)
            tokens.append(_Token(self._text[start : found.end()], start, kind))
            position = found.end()
        return [*tokens, _Token("", len(self._text), "end")]

    @property
    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, *wanted: str) -> _Token | None:
        token = self._peek
        if token.kind == "mark" and token.text in wanted:
            self._next += 1
            return token
        return None

    def _refuse(self, what: str, position: int | None = None) -> NoReturn:
        raise PatternError.at(self._text, self._peek.position if position is None else position, what)

    def _alternation(self) -> Node:
        options = [self._sequence()]
        while self._take("|"):
            options.append(self._sequence())
        return options[0] if len(options) == 1 else Alternation(tuple(options))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while not (self._peek.kind == "end" or self._peek.text in ("|", ")")):
            parts += self._step()
        if not parts:
            self._refuse("a symbol or a group must stand here, as in A | B or (A B)")
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _step(self) -> list[Node]:
        """Return what stands up to and with the next symbol or group."""
        if (self._peek.text, self._peek.kind) == ("!", "mark"):
            return [self._not_next()]
        arrow = self._take("->", "->>")
        if arrow is None:
            return [self._repeat()]
        never: tuple[str, ...] = ()
        while self._take("!"):
            never += self._negated()
            if self._at_duration():
                return [Wait(never, self._duration(), arrow.position)]
            following = self._take("->", "->>")
            if following is None:
                self._refuse(
                    f"what follows -> !{never[-1]}? write `-> !{never[-1]} -> C` for none of it before C, "
                    f"or `-> !{never[-1]} for 5 minutes` at the end"
                )
            arrow = following
        if self._peek.kind == "end" or self._peek.text in ("|", ")"):
            self._refuse(f"{arrow.text} leads nowhere; name what follows, as in A {arrow.text} B")
        if self._peek.text in ("->", "->>"):
            self._refuse("two arrows in a row; leave one out")
        return [Gap(arrow.text == "->>", never, arrow.position), self._repeat()]

    def _not_next(self) -> Node:
        mark = self._peek.position
        self._next += 1
        never = self._negated()
        if self._at_duration():
            self._refuse(f"a negation with a time needs an arrow: write `-> !{never[0]} for …`", mark)
        return NotNext(never, mark)

    def _negated(self) -> tuple[str, ...]:
        """Return the symbols after a `!`: one, or several as in `!(B | C)`."""
        grouped = self._take("(") is not None
        names = [self._name()]
        while grouped and self._take("|"):
            names.append(self._name())
        if grouped and not self._take(")"):
            self._refuse("only symbols can be negated together, as in !(B | C)")
        if self._peek.kind == "mark" and self._peek.text in ("*", "+", "?", "{"):
            self._refuse(
                "a negation takes no row, so it cannot be repeated; for rows that are not B, "
                "define a symbol that says so"
            )
        return tuple(names)

    def _name(self) -> str:
        token = self._peek
        if token.kind != "name":
            self._refuse("! stands before a symbol, as in !B, or before several, as in !(B | C)")
        self._next += 1
        return token.text

    def _at_duration(self) -> bool:
        following = self._tokens[self._next + 1 : self._next + 2]
        return self._peek.text == "for" and bool(following) and following[0].kind == "number"

    def _duration(self) -> int:
        start = self._tokens[self._next + 1].position
        self._next += 1
        while self._peek.kind == "number":
            self._next += 1
            if self._peek.kind != "name":
                self._refuse("a unit must follow the number, as in `for 5 minutes`")
            self._next += 1
        text = self._text[start : self._peek.position].strip()
        try:
            return milliseconds(text) * 1000
        except SettingError as error:
            self._refuse(str(error), start)

    def _repeat(self) -> Node:
        body = self._atom()
        token = self._take("*", "+", "?", "{")
        if token is None:
            return body
        least, most = self._counts(token) if token.text == "{" else _QUANTIFIERS[token.text]
        reluctant = self._take("?") is not None
        if self._peek.kind == "mark" and self._peek.text in ("*", "+", "?", "{"):
            self._refuse("two quantifiers on one thing; put the inner one in a group, as in (A+)*")
        return Repeat(body, least, most, not reluctant)

    def _counts(self, brace: _Token) -> tuple[int, int | None]:
        least = self._number()
        comma = self._take(",") is not None
        most = self._number() if comma else least
        if (least is None and most is None) or not self._take("}"):
            self._refuse("write how often as {3}, {3,}, {3,5} or {,5}")
        low = least or 0
        if most is not None and (most < low or most == 0):
            self._refuse(
                f"{{{low},{most}}} allows no number; give at most at least 1 and at least", brace.position
            )
        if max(low, most or 0) > _MOST:
            self._refuse(
                f"{_MOST} repetitions are allowed; more of them is a matter of `+` and a measure",
                brace.position,
            )
        return low, most

    def _number(self) -> int | None:
        if self._peek.kind != "number":
            return None
        self._next += 1
        return int(self._tokens[self._next - 1].text)

    def _atom(self) -> Node:
        token = self._peek
        if token.kind == "name":
            self._next += 1
            return Symbol(token.text)
        if self._take("("):
            self._depth += 1
            if self._depth > _DEEPEST:
                self._refuse(f"groups are nested more than {_DEEPEST} deep; write it flatter")
            inside = self._alternation()
            if not self._take(")"):
                self._refuse("a group is open here; close it with )")
            self._depth -= 1
            return inside
        if token.kind == "number":
            self._refuse("a symbol starts with a letter; how often something comes is written {3}")
        self._refuse(f"{token.text!r} has nothing before it to work on; put a symbol or a group there")


def _odd(mark: str) -> str:
    if mark in "^$":
        return f"{mark!r} means nothing here: a stream has no first or last row; leave it out"
    if mark == "-":
        return "'-' alone means nothing here; write -> for rows between, or define a symbol for rows to leave out"
    return f"{mark!r} means nothing in a pattern; symbols are made of letters, digits and _"
