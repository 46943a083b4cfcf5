"""Where each row has one symbol and rows are adjacent, a pattern is a regular expression over letters."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headwater.pipeline.patterns import syntax
from headwater.pipeline.patterns.engine import Match

from .strategies import FAR, STRICT, mask_of

LETTERS = st.text("ABCD", max_size=30)


def is_repeated_empty(node: syntax.Node) -> bool:
    """Whether a repetition is of what can be empty, where regular expressions have rules of their own."""
    match node:
        case syntax.Repeat(body):
            return bool(re.fullmatch(regex(body), "")) or is_repeated_empty(body)
        case syntax.Sequence(parts) | syntax.Alternation(parts):
            return any(is_repeated_empty(part) for part in parts)
        case _:
            return False


def regex(node: syntax.Node) -> str:
    match node:
        case syntax.Symbol(name):
            return name
        case syntax.Sequence(parts):
            return "".join(f"(?:{regex(part)})" for part in parts)
        case syntax.Alternation(options):
            return "|".join(f"(?:{regex(option)})" for option in options)
        case syntax.Repeat(body, least, most, greedy):
            return f"(?:{regex(body)}){{{least},{'' if most is None else most}}}{'' if greedy else '?'}"
    raise AssertionError(node)


def spans(pattern: str, letters: str, skip: str) -> list[tuple[int, int]]:
    match = Match(pattern, ("id",), skip=skip, measures={"first": "first(id)", "last": "last(id)"})
    # A last row that is nothing ends what is open.
    rows: list[Any] = [
        (number, 0, number, mask_of(1 << "ABCD".index(letter), match) if letter in "ABC" else 0, number)
        for number, letter in enumerate(letters + "D")
    ]
    waiting = match.step(("k",), None, rows, 0)
    return [(row[2], row[3] + 1) for row in match.step(("k",), waiting.state, [], FAR).out]


@given(STRICT.filter(lambda pattern: not is_repeated_empty(syntax.parse(pattern))), LETTERS)
def test_past_the_last_row_is_what_finditer_finds(pattern: str, letters: str) -> None:
    expected = [found.span() for found in re.finditer(regex(syntax.parse(pattern)), letters)]
    assert spans(pattern, letters, "past last row") == expected


@given(STRICT.filter(lambda pattern: not is_repeated_empty(syntax.parse(pattern))), LETTERS)
def test_to_the_next_row_is_what_match_finds_at_each_place(pattern: str, letters: str) -> None:
    compiled = re.compile(regex(syntax.parse(pattern)))
    found = [compiled.match(letters, start) for start in range(len(letters))]
    assert sorted(spans(pattern, letters, "to next row")) == [each.span() for each in found if each]
