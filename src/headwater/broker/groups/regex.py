"""Subscription patterns: RE2's syntax, matched against whole topic names in linear time.

Any client may send a pattern and the broker has to match it against every topic name, so a matcher
that backtracks, as Python's does, would let one client stop everybody with `(a+)+`. Patterns become
a non-deterministic automaton, which is run by following all its states at once; the sets of states
met are remembered, so that matching costs about one lookup per character. As in RE2 there are no
back-references and no look-around. Only what stands for a single character (a class, an escape,
the dot) is left to Python's `re`, which cannot backtrack there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

from headwater.core.errors import HeadwaterError

MAX_PATTERN = 4096
"""Characters of a pattern; topic names have 249 at most, so honest patterns are far shorter."""
MAX_STATES = 10_000
"""States of a pattern's automaton: what `{1000}` within `{1000}` would exceed, as RE2 refuses it."""
MAX_REPEAT = 1000
MAX_DEPTH = 100
_MAX_REMEMBERED = 10_000

_NAMED_CLASS = re.compile(r"\[:(\^?)(\w+):\]")
_POSIX = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7f",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}


class InvalidPattern(HeadwaterError):
    """A pattern that RE2 would not compile either, or that is beyond our bounds."""


@dataclass
class _State:
    """A state of the automaton: where a matching character leads, and where none is needed."""

    accepts: re.Pattern[str] | None = None
    next: int = -1
    free: list[int] = field(default_factory=list)
    at_start: int = -1
    at_end: int = -1


class TopicPattern:
    """A compiled pattern."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > MAX_PATTERN:
            raise InvalidPattern(f"it is longer than {MAX_PATTERN} characters")
        self._states: list[_State] = []
        parser = _Parser(pattern, self._states)
        self._first, self._last = parser.parse()
        self._remembered: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches(self, name: str) -> bool:
        """Return whether the pattern matches the whole of `name`."""
        current = self._closure({self._first}, at_start=True, at_end=not name)
        for position, character in enumerate(name):
            if position == len(name) - 1:
                current = self._step(current, character, at_end=True)
            else:
                key = (current, character)
                known = self._remembered.get(key)
                if known is None:
                    if len(self._remembered) >= _MAX_REMEMBERED:
                        self._remembered.clear()
                    known = self._remembered[key] = self._step(current, character, at_end=False)
                current = known
            if not current:
                return False
        return self._last in current

    def _step(self, current: frozenset[int], character: str, *, at_end: bool) -> frozenset[int]:
        reached = set()
        for number in current:
            state = self._states[number]
            if state.accepts is not None and state.accepts.match(character):
                reached.add(state.next)
        return self._closure(reached, at_start=False, at_end=at_end)

    def _closure(self, states: set[int], *, at_start: bool, at_end: bool) -> frozenset[int]:
        todo, seen = list(states), set(states)
        while todo:
            state = self._states[todo.pop()]
            reached = list(state.free)
            if at_start and state.at_start >= 0:
                reached.append(state.at_start)
            if at_end and state.at_end >= 0:
                reached.append(state.at_end)
            for number in reached:
                if number not in seen:
                    seen.add(number)
                    todo.append(number)
        return frozenset(seen)


Fragment = tuple[int, int]
"""A part of the automaton: its first and its last state."""


class _Parser:
    """Reads a pattern by recursive descent, and builds the automaton as it goes."""

    def __init__(self, pattern: str, states: list[_State]) -> None:
        self._text = pattern
        self._at = 0
        self._states = states
        self._flags = re.RegexFlag(0)
        self._depth = 0

    def parse(self) -> Fragment:
        fragment = self._alternatives()
        if self._at < len(self._text):
            raise InvalidPattern("it has a closing parenthesis without an opening one")
        return fragment

    def _alternatives(self) -> Fragment:
        branches = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            branches.append(self._sequence())
        if len(branches) == 1:
            return branches[0]
        first, last = self._new(), self._new()
        for start, end in branches:
            self._states[first].free.append(start)
            self._states[end].free.append(last)
        return first, last

    def _sequence(self) -> Fragment:
        first = last = self._new()
        while self._peek() not in ("", "|", ")"):
            start, end = self._repeated()
            self._states[last].free.append(start)
            last = end
        return first, last

    def _repeated(self) -> Fragment:
        begin = self._at
        fragment = self._atom()
        atom_end = self._at
        bounds = self._quantifier()
        if bounds is None:
            return fragment
        if self._peek() == "?":
            self._at += 1  # laziness changes what is captured, never whether a whole name matches
        if self._quantifier() is not None:
            raise InvalidPattern("it repeats a repetition")
        resume = self._at
        first = last = self._new()
        low, high = bounds
        for count in range(max(low, high if high is not None else low)):
            # Each copy is parsed anew: an automaton's states cannot be shared between copies.
            start, end = self._again(begin, atom_end)
            after = self._new()
            self._states[last].free.append(start)
            self._states[end].free.append(after)
            if count >= low:
                # Not to `end`: that may lead back into a repetition within.
                self._states[last].free.append(after)
            last = after
        if high is None:
            start, end = self._again(begin, atom_end)
            loop = self._new()
            self._states[last].free.append(loop)
            self._states[loop].free.append(start)
            self._states[end].free.append(loop)
            last = loop
        self._at = resume
        return first, last

    def _again(self, begin: int, end: int) -> Fragment:
        self._at = begin
        fragment = self._atom()
        if self._at != end:
            raise InvalidPattern("a repetition in it cannot be read")
        return fragment

    def _quantifier(self) -> tuple[int, int | None] | None:
        character = self._peek()
        if character in ("*", "+", "?"):
            self._at += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[character]
        counted = re.compile(r"\{(\d+)(,(\d*))?\}", re.ASCII).match(self._text, self._at)
        if counted is None:
            return None
        self._at = counted.end()
        low = _bound(counted[1])
        if counted[2] is None:
            return low, low
        high = _bound(counted[3]) if counted[3] else None
        if high is not None and high < low:
            raise InvalidPattern(f"the repetition {counted[0]} ends before it begins")
        return low, high

    def _atom(self) -> Fragment:
        character = self._peek()
        if character == "(":
            return self._group()
        if character in ("*", "+", "?"):
            raise InvalidPattern(f"there is nothing for {character} to repeat")
        if character == "[":
            return self._single(self._class())
        if character == "\\":
            return self._escape()
        self._at += 1
        if character in ("^", "$"):
            return self._anchor(start=character == "^")
        return self._single("." if character == "." else re.escape(character))

    def _group(self) -> Fragment:
        flags = self._flags
        self._at += 1
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise InvalidPattern(f"its parentheses are nested deeper than {MAX_DEPTH}")
        if self._peek() == "?":
            opening = re.compile(r"\?(?:P?<[A-Za-z_]\w*>|(i?)(:|\)))").match(self._text, self._at)
            if opening is None:
                raise InvalidPattern(
                    f"the group at {self._text[self._at - 1 : self._at + 3]!r} is not supported"
                )
            self._at = opening.end()
            if opening[1]:
                self._flags |= re.IGNORECASE
            if opening[2] == ")":
                self._depth -= 1
                first = self._new()
                return first, first
        fragment = self._alternatives()
        if self._peek() != ")":
            raise InvalidPattern("it has an opening parenthesis without a closing one")
        self._at += 1
        self._depth -= 1
        self._flags = flags
        return fragment

    def _class(self) -> str:
        """Return the bracketed class at the current position, in Python's spelling."""
        out = ["["]
        self._at += 1
        if self._peek() == "^":
            out.append("^")
            self._at += 1
        first = True
        while (character := self._peek()) != "]" or first:
            first = False
            if character == "":
                raise InvalidPattern("it has an opening bracket without a closing one")
            named = _NAMED_CLASS.match(self._text, self._at)
            if named is not None:
                if named[1] or named[2] not in _POSIX:
                    raise InvalidPattern(f"the class {named[0]} is not supported")
                out.append(_POSIX[named[2]])
                self._at = named.end()
            elif character == "\\":
                out.append(self._text[self._at : self._at + 2])
                self._at += 2
            else:
                out.append("\\" + character if character in "[]&~|" else character)
                self._at += 1
        self._at += 1
        return "".join(out) + "]"

    def _escape(self) -> Fragment:
        letter = self._text[self._at + 1 : self._at + 2]
        if letter in ("A", "z"):
            self._at += 2
            return self._anchor(start=letter == "A")
        if letter == "x":
            code = re.compile(r"\\x([0-9A-Fa-f]{2})").match(self._text, self._at)
            if code is None:
                raise InvalidPattern("\\x is not followed by two hexadecimal digits")
            self._at = code.end()
            return self._single(code[0])
        if letter == "" or (letter.isalnum() and letter not in "dDsSwWtnrfva"):
            raise InvalidPattern(f"the escape \\{letter} is not supported")
        self._at += 2
        return self._single("\\" + letter)

    def _anchor(self, *, start: bool) -> Fragment:
        first, last = self._new(), self._new()
        if start:
            self._states[first].at_start = last
        else:
            self._states[first].at_end = last
        return first, last

    def _single(self, spelling: str) -> Fragment:
        first, last = self._new(), self._new()
        try:
            self._states[first].accepts = _character(spelling, self._flags)
        except re.error as error:
            raise InvalidPattern(f"{spelling} cannot be read: {error}") from None
        self._states[first].next = last
        return first, last

    def _new(self) -> int:
        if len(self._states) >= MAX_STATES:
            raise InvalidPattern("it repeats too much")
        self._states.append(_State())
        return len(self._states) - 1

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]


def _bound(digits: str) -> int:
    if len(digits) > 4 or int(digits) > MAX_REPEAT:
        raise InvalidPattern(f"it repeats more than {MAX_REPEAT} times")
    return int(digits)


@lru_cache(maxsize=1024)
def _character(spelling: str, flags: re.RegexFlag) -> re.Pattern[str]:
    return re.compile(spelling, flags | re.ASCII)


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> TopicPattern:
    """Return the compiled `pattern`, or raise `InvalidPattern`."""
    return TopicPattern(pattern)
