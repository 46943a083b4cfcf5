"""The two languages: what they read, and what they say about what they cannot."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.pipeline.patterns import expressions, syntax
from headwater.pipeline.patterns.automaton import compile_pattern
from headwater.pipeline.patterns.errors import PatternError
from headwater.pipeline.patterns.expressions import Literal
from headwater.pipeline.patterns.syntax import Alternation, Gap, NotNext, Repeat, Sequence, Symbol, Wait
from headwater.pipeline.patterns.values import Slots, bind, time_places

A, B, C = Symbol("A"), Symbol("B"), Symbol("C")


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("A", A),
        ("A B | C", Alternation((Sequence((A, B)), C))),
        ("A (B | C)", Sequence((A, Alternation((B, C))))),
        (
            "A* B+? C??",
            Sequence((Repeat(A, 0, None, True), Repeat(B, 1, None, False), Repeat(C, 0, 1, False))),
        ),
        (
            "A{2} B{2,} C{2,3}?",
            Sequence((Repeat(A, 2, 2, True), Repeat(B, 2, None, True), Repeat(C, 2, 3, False))),
        ),
        ("A{,3}", Repeat(A, 0, 3, True)),
        ("A->B->>C", Sequence((A, Gap(False), B, Gap(True), C))),
        ("A !B C", Sequence((A, NotNext(("B",)), C))),
        ("A -> !B -> !(A|C) ->> C", Sequence((A, Gap(True, ("B", "A", "C")), C))),
        ("A -> !B for 1 hour 30 minutes", Sequence((A, Wait(("B",), 5_400_000_000)))),
        ("for for", Sequence((Symbol("for"), Symbol("for")))),
        ("A (-> A){2,}", Sequence((A, Repeat(Sequence((Gap(False), A)), 2, None, True)))),
    ],
)
def test_patterns(text: str, tree: Any) -> None:
    assert syntax.parse(text) == tree


@pytest.mark.parametrize(
    ("text", "at", "says"),
    [
        ("A | ", 5, "a symbol or a group must stand here"),
        ("A (B", 5, "close it with )"),
        ("A B)", 4, "closes no group"),
        ("* A", 1, "nothing before it"),
        ("A**", 3, "put the inner one in a group"),
        ("A{3,1}", 2, "allows no number"),
        ("A{x}", 3, "{3}, {3,}, {3,5}"),
        ("A{9999}", 2, "1000 repetitions are allowed"),
        ("A 3", 3, "starts with a letter"),
        ("A ->", 5, "leads nowhere"),
        ("A -> -> B", 6, "two arrows"),
        ("A -> !B C", 9, "`-> !B -> C`"),
        ("A -> !B", 8, "for 5 minutes"),
        ("A !B for 5 minutes", 3, "needs an arrow"),
        ("A -> !B for 5 moons", 13, "is no unit"),
        ("A -> !B for 5", 14, "a unit must follow"),
        ("A !B* C", 5, "cannot be repeated"),
        ("A !(B C) D", 7, "!(B | C)"),
        ("A ! | B", 5, "stands before a symbol"),
        ("^A", 1, "no first or last row"),
        ("A - B", 3, "write -> for rows between"),
        ("A § B", 3, "letters, digits and _"),
        ("A*", 1, "can match no rows at all"),
        ("-> A", 1, "cannot begin with an arrow"),
        ("A -> B*", 3, "A (-> B)*"),
        ("A -> (-> B)", 3, "straight to another"),
        ("A !B", 3, "no row is sure to follow"),
        ("A !B C?", 3, "no row is sure to follow"),
        ("A -> !B for 1 s C", 3, "is for the end of a pattern"),
    ],
)
def test_a_pattern_that_is_wrong_is_told_where_and_how_to_right_it(text: str, at: int, says: str) -> None:
    with pytest.raises(PatternError) as raised:
        compile_pattern(text)
    message, shown, mark = str(raised.value).split("\n")
    assert says in message
    assert f"(at character {at})" in message
    assert shown == f"    {text}"
    assert mark.index("^") == at + 3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is no pattern"),
        ("A{1000} (B{1000} C{1000}){5}", "more than 5000 steps"),
        (" ".join(f"S{n}" for n in range(61)), "60 are allowed"),
        ("(" * 60 + "A" + ")" * 60, "50 deep"),
        ("A " * 6000, "10000 are allowed"),
    ],
)
def test_patterns_have_limits(text: str, says: str) -> None:
    with pytest.raises(PatternError, match=says):
        compile_pattern(text)


@given(st.text("AB |()*+?{},123!-> for min", max_size=20))
def test_any_text_is_a_pattern_or_an_error(text: str) -> None:
    with suppress(PatternError):
        assert compile_pattern(text).symbols


def value(text: str, row: tuple[Any, ...] = (0, 0, 0, 0, 7, None, "it's")) -> Any:
    columns = ("x", "nothing", "odd name")
    tree = expressions.parse(text, ("A",), columns)
    places = time_places(columns)
    return bind(tree, Slots(("A",), places), places, {})(row, ())


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("1 + 2 * 3 - 4", 3),
        ("(1 + 2) * -3", -9),
        ("7 / 2", 3.5),
        ("-7 % 3", -1),
        ("x / 0", None),
        ("x % 0", None),
        ("1.5e1 + .5", 15.5),
        ("x > 6 and x < 8", True),
        ("x >= 7 AND NOT x <> 7", True),
        ("x = 8 or x == 7", True),
        ("x != 7", False),
        ("nothing = nothing", None),
        ("nothing > 1 and x = 8", False),
        ("nothing > 1 or x = 7", True),
        ("nothing > 1 or x = 8", None),
        ("not nothing > 1", None),
        ("nothing is null and x is not null", True),
        ("x in (1, 7)", True),
        ("x in (1, nothing)", None),
        ("x not in (1, 2)", True),
        ("x between 7 and 8", True),
        ("x not between 7 and 8", False),
        ("`odd name` = 'it''s'", True),
        ("upper(`odd name`)", "IT'S"),
        ("coalesce(nothing, x, 1)", 7),
        ("abs(x - 10)", 3),
        ("5 minutes", 300_000_000),
        ("1 hour 30 minutes = 90 min", True),
        ("true and not false", True),
        ("null is null", True),
        ("not not true", True),
    ],
)
def test_expressions(text: str, result: Any) -> None:
    assert value(text) == result
    assert type(value(text)) is type(result)


@pytest.mark.parametrize(
    ("text", "at", "says"),
    [
        ("x >", 4, "a value must stand here"),
        ("x > 1 x < 2", 7, "join two conditions with and / or"),
        ("y > 1", 1, "there is no column 'y'; the columns are x, A.b"),
        ("A > 1", 1, "count(A)"),
        ("B.x > 1", 1, "no symbol 'B'; it has A"),
        ("A. > 1", 4, "a column must follow, as in A.price"),
        ("last(A.y) > 1", 8, "there is no column 'y'"),
        ("sum(A.x * 2) > 1", 9, "compute other values as a column"),
        ("median(x) > 1", 1, "there is no function 'median'"),
        ("sum() > 1", 5, "sum takes a column"),
        ("last(A.x, y) > 1", 11, "whole number"),
        ("prev(A.x) > 1", 11, "prev takes a column of the row before"),
        ('x = "paid"', 5, "single quotes"),
        ("x is 3", 6, "only null can follow is"),
        ("x between 1", 12, "x between 1 and 2"),
        ("x not 3", 7, "not stands before a condition"),
        ("(x > 1", 7, "')' is missing"),
        ("x > 5 moons", 7, "write durations as 5 minutes"),
        ("abs(x, x) > 1", 1, "takes one value"),
        ("and > 1", 1, "backquotes"),
    ],
)
def test_an_expression_that_is_wrong_is_told_where_and_how_to_right_it(text: str, at: int, says: str) -> None:
    with pytest.raises(PatternError) as raised:
        expressions.parse(text, ("A",), ("x", "A.b"))
    assert says in str(raised.value)
    assert f"(at character {at})" in str(raised.value)


@given(st.text("xA.()<>=+-*/%, 1andorti's`nul", max_size=20))
def test_any_text_is_an_expression_or_an_error(text: str) -> None:
    with suppress(PatternError):
        assert expressions.parse(text, ("A",), ("x",)) is not None


def test_limits_of_expressions() -> None:
    with pytest.raises(PatternError, match="50 deep"):
        expressions.parse("(" * 60 + "1" + ")" * 60, (), ())
    with pytest.raises(PatternError, match="10000 are allowed"):
        expressions.parse("1" * 10_001, (), ())
    assert expressions.parse("-" * 9000 + "1", (), ()) == Literal(1)
