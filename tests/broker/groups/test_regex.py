from __future__ import annotations

import re
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from effort import examples
from headwater.broker.groups.regex import InvalidPattern, TopicPattern

atoms = st.sampled_from(["a", "b", "-", r"\.", ".", "[ab]", "[^a]", r"\w", r"\d", "[a-c.]", "^", "$"])


def _grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    quantifier = st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "+?"])
    return st.one_of(
        st.lists(inner, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: "(" + "|".join(parts) + ")"),
        st.tuples(inner, quantifier).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
    )


patterns = st.recursive(atoms, _grow, max_leaves=6)


@settings(max_examples=examples(1000), deadline=None)
@example("(?:a(?:b)*)?", "b")
@given(patterns, st.text("ab-.c1", max_size=6))
def test_it_matches_what_python_matches(pattern: str, name: str) -> None:
    assert TopicPattern(pattern).matches(name) == (re.fullmatch(pattern, name, re.ASCII) is not None)


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "a)",
        "*",
        "a**",
        "[a",
        "[z-a]",
        "(?=a)",
        "(?<!a)b",
        r"(a)\1",
        r"\b",
        "a{2,1}",
        "a{1001}",
        "\\",
    ],
)
def test_what_re2_refuses_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        TopicPattern(pattern)


@pytest.mark.parametrize("pattern", ["(a{1000}){1000}", "(" * 5000, "((((((((((a*)*)*)*)*)*)*)*)*)*" * 300])
def test_what_would_take_too_much_is_refused_soon(pattern: str) -> None:
    began = time.perf_counter()
    with pytest.raises(InvalidPattern):
        TopicPattern(pattern)
    assert time.perf_counter() - began < 2


def test_backtracking_bait_costs_nothing() -> None:
    began = time.perf_counter()
    assert not TopicPattern("(a+)+(a|aa)*[^a]").matches("a" * 249)
    assert time.perf_counter() - began < 1


def test_named_classes_and_case() -> None:
    assert TopicPattern("[[:alpha:]_]+[[:digit:]]").matches("ab_1")
    assert TopicPattern("(?i)orders-.*").matches("Orders-EU")
    assert not TopicPattern("orders-.*").matches("Orders-EU")
    assert not TopicPattern("order").matches("orders")
