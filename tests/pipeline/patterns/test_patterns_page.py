"""docs/patterns.md: its patterns are patterns, its conditions are conditions, its examples give what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from headwater.pipeline.patterns import expressions
from headwater.pipeline.patterns.automaton import compile_pattern
from headwater.pipeline.patterns.engine import DEFAULT_LIMIT, DEFAULT_MEASURES, Match
from headwater.pipeline.patterns.errors import PatternError
from headwater.pipeline.patterns.partial import MOST_ROWS

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "patterns.md").read_text()
EXAMPLE = re.compile(r"^\| `([^`]+)` \| `([a-z ]+)` \| ((?:`[a-z ]+`(?:, )?)*) ?\|$", re.MULTILINE)


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


EXAMPLES = EXAMPLE.findall(section("Which match"))


def test_all_examples_are_tried() -> None:
    assert len(EXAMPLES) == section("Which match").count("\n| `")


@pytest.mark.parametrize(("pattern", "rows", "expected"), EXAMPLES)
def test_examples(pattern: str, rows: str, expected: str) -> None:
    match = Match(pattern.replace("\\|", "|"), ("name",), measures={"names": "collect(name)"})
    events: list[Any] = [
        (at, 0, at, 1 << match.symbols.index(name) if name in match.symbols else 0, name)
        for at, name in enumerate(rows.split())
    ]
    found = [" ".join(row[2]) for row in match.step(("k",), None, events, 100).out]
    assert found == re.findall(r"`([^`]+)`", expected)


def test_each_form_of_the_language_is_one() -> None:
    forms = re.findall(r"^\| `(.+?)` \| ", section("The language"), re.MULTILINE)
    assert len(forms) > 10
    for form in forms:
        assert compile_pattern(form.replace("\\|", "|")).symbols


def test_the_error_is_what_the_page_shows() -> None:
    shown = re.findall(r"^```\n(.*?)\n```", section("The language"), re.MULTILINE | re.DOTALL)
    with pytest.raises(PatternError) as raised:
        compile_pattern("A -> B*")
    assert shown == [str(raised.value)]


def test_every_function_is_described() -> None:
    text = section("Conditions on earlier rows") + section("Measures")
    for name in [*expressions.AGGREGATES, *expressions.SCALARS, *expressions.PLAIN, "prev", "match_number"]:
        assert re.search(rf"`{name}\b", text), name


def test_defaults() -> None:
    assert f"{DEFAULT_LIMIT:,} unless you say otherwise" in section("Limits and state")
    assert f"hold more than {MOST_ROWS:,} rows" in section("Limits and state")
    assert "there are `start`, `end` and `rows`" in section("Measures")
    assert list(DEFAULT_MEASURES) == ["start", "end", "rows"]


def test_its_measures_and_conditions_compile() -> None:
    measures = dict(re.findall(r'^    "(\w+)": "(.+)",$', section("Measures"), re.MULTILINE))
    assert len(measures) == 4
    assert Match("small{3,} large", ("amount",), measures=measures).measures == tuple(measures)
    (condition,) = re.findall(r'"higher": "(.+?)"\}', section("Conditions on earlier rows"))
    assert Match("low (-> higher){3,}", ("price",), conditions={"higher": condition}).symbols == (
        "low",
        "higher",
    )
