"""The engine finds what the definition of a match says, whatever the pattern, the rows and their order."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.pipeline.patterns import groups
from headwater.pipeline.patterns.automaton import compile_pattern
from headwater.pipeline.patterns.engine import Match

from .reference import Path, Reference
from .strategies import (
    RELAXED,
    STEPS,
    STRICT,
    SYMBOLS,
    TIMED,
    Row,
    mask_of,
    masked,
    rows_of,
    run,
    run_in_batches,
)

MEASURES = {"ids": "collect(id)", "symbols": "collect(classifier())", "number": "match_number()"}
SKIPS = ["past last row", "to next row", "to first B", "to last B", "to last A", "no skip"]
WITHIN = st.sampled_from([None, None, 1000, 3000, 6000])
FAST = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much], deadline=None)

CONDITIONS: list[tuple[str, str, Any]] = [
    ("B", "value > last(A.value)", lambda row, at: at("A") and row[5] > at("A")[-1][5]),
    ("B", "value >= sum(A.value)", lambda row, at: at("A") and row[5] >= sum(each[5] for each in at("A"))),
    ("A", "count(A) < 3", lambda row, at: len(at("A")) < 2),
    (
        "A",
        "count(A) = 1 or value <> last(A.value, 1)",
        lambda row, at: not at("A") or row[5] != at("A")[-1][5],
    ),
    (
        "B",
        "count(B) < 3 or value > last(B.value, 2)",
        lambda row, at: len(at("B")) < 2 or row[5] > at("B")[-2][5],
    ),
    ("C", "value > avg(value)", lambda row, at: row[5] > _mean([*[each[5] for each in at(None)], row[5]])),
    ("C", "value = first(A.value) or value = B.value", lambda row, at: _either(row, at)),
    ("A", "max(B.value) is null or value <= max(B.value) + 1", lambda row, at: _below(row, at)),
]


def _mean(values: list[int]) -> float:
    return sum(values) / len(values)


def _either(row: Row, at: Any) -> bool:
    return bool((at("A") and row[5] == at("A")[0][5]) or (at("B") and row[5] == at("B")[-1][5]))


def _below(row: Row, at: Any) -> bool:
    return not at("B") or row[5] <= max(each[5] for each in at("B")) + 1


def reference(pattern: str, rows: list[Row], within: int | None, conditions: list[Any]) -> Reference:
    def holds(number: int, symbol: str, path: Path) -> bool:
        def at(name: str | None) -> list[Row]:
            return [rows[row] for row, taken in path if name in (None, taken)]

        row = rows[number]
        plain = row[3] >> SYMBOLS.index(symbol) & 1
        return bool(plain and all(test(row, at) for name, _, test in conditions if name == symbol))

    return Reference(pattern, [row[0] for row in rows], holds, within)


def expected(
    pattern: str, rows: list[Row], within: int | None, skip: str, conditions: list[Any]
) -> list[Any]:
    paths = reference(pattern, rows, within, conditions).by_skip(skip)
    return [([rows[row][4] for row, _ in path], [symbol for _, symbol in path]) for path in paths]


def found(out: list[Row]) -> list[Any]:
    assert all(row[:2] == (0, "k") for row in out)
    assert [row[4] for row in out] == list(range(1, len(out) + 1))
    return [(row[2], row[3]) for row in out]


def check(
    pattern: str, rows: list[Row], within: int | None, skip: str, conditions: list[Any], seed: int
) -> None:
    symbols = compile_pattern(pattern).symbols
    if any(word in skip and word not in symbols for word in ("A", "B")):
        skip = "past last row"
    used = [each for each in conditions if each[0] in symbols and _known(each[1], symbols)]
    texts = {name: text for name, text, _ in used}
    match = Match(pattern, ("id", "value"), conditions=texts, within=within, skip=skip, measures=MEASURES)
    wanted = expected(pattern, rows, within, skip, used)
    results = found(run(match, rows))
    if skip == "to next row":
        # These are independent of each other, and come out as they are completed.
        assert sorted(results) == sorted(wanted)
    elif skip == "no skip":
        # The same rows may be a match by themselves and, in another way, once more when time has passed.
        assert sorted(results if " for " not in pattern else _unique(results)) == sorted(wanted)
    else:
        assert results == wanted
    assert found(run_in_batches(match, rows, seed)) == results


def _unique(results: list[Any]) -> list[Any]:
    return [each for place, each in enumerate(results) if each not in results[:place]]


def _known(text: str, symbols: tuple[str, ...]) -> bool:
    return all((f"{name}." not in text and f"({name})" not in text) or name in symbols for name in SYMBOLS)


@FAST
@given(STRICT, STEPS, WITHIN, st.sampled_from(SKIPS), st.integers(0, 99))
def test_adjacent_rows(pattern: str, steps: Any, within: int | None, skip: str, seed: int) -> None:
    check(pattern, rows_of(steps), within, skip, [], seed)


@FAST
@given(RELAXED, STEPS, WITHIN, st.sampled_from(SKIPS), st.integers(0, 99))
def test_gaps_and_negation(pattern: str, steps: Any, within: int | None, skip: str, seed: int) -> None:
    check(pattern, rows_of(steps), within, skip, [], seed)


@FAST
@given(TIMED, STEPS, WITHIN, st.sampled_from(SKIPS), st.integers(0, 99))
def test_negation_that_time_completes(
    pattern: str, steps: Any, within: int | None, skip: str, seed: int
) -> None:
    check(pattern, rows_of(steps), within, skip, [], seed)


@FAST
@given(
    st.one_of(STRICT, RELAXED, TIMED),
    STEPS,
    WITHIN,
    st.sampled_from(SKIPS),
    st.lists(st.sampled_from(CONDITIONS), min_size=1, max_size=2, unique_by=lambda each: each[0]),
    st.integers(0, 99),
)
def test_conditions_on_earlier_rows(
    pattern: str, steps: Any, within: int | None, skip: str, conditions: list[Any], seed: int
) -> None:
    check(pattern, rows_of(steps), within, skip, conditions, seed)


@FAST
@given(st.one_of(STRICT, RELAXED), STEPS, WITHIN, st.sampled_from(SKIPS[:-1]), st.integers(0, 99))
def test_the_table_and_the_runs_agree(
    pattern: str, steps: Any, within: int | None, skip: str, seed: int
) -> None:
    symbols = [name for name in SYMBOLS if name in pattern]
    if any(word in skip and word not in symbols for word in ("A", "B")):
        skip = "to next row"
    by_table = Match(pattern, ("id", "value"), within=within, skip=skip, measures=MEASURES)
    always = {symbols[0]: f"count({symbols[0]}) > 0"}
    by_runs = Match(pattern, ("id", "value"), conditions=always, within=within, skip=skip, measures=MEASURES)
    rows = rows_of(steps)
    assert found(run_in_batches(by_table, rows, seed)) == found(run_in_batches(by_runs, rows, seed))


@FAST
@given(RELAXED, STEPS, WITHIN, st.sampled_from(SKIPS[:-1]), st.integers(0, 99))
def test_rows_that_go_are_not_missed(
    pattern: str, steps: Any, within: int | None, skip: str, seed: int
) -> None:
    with mock.patch.object(groups, "_MANY", -1000):
        check(pattern, rows_of(steps), within, skip, [], seed)


@FAST
@given(
    st.one_of(STRICT, RELAXED, TIMED),
    STEPS,
    WITHIN,
    st.sampled_from(["past last row", "to next row", "no skip"]),
    st.booleans(),
    st.integers(1, 4),
    st.integers(0, 99),
)
def test_a_limit_drops_the_same_however_rows_come(
    pattern: str, steps: Any, within: int | None, skip: str, conditional: bool, limit: int, seed: int
) -> None:
    symbol = compile_pattern(pattern).symbols[0]
    conditions = {symbol: f"count({symbol}) < 4"} if conditional else {}
    match = Match(
        pattern,
        ("id", "value"),
        conditions=conditions,
        within=within,
        skip=skip,
        limit=limit,
        measures=MEASURES,
    )
    rows = rows_of(steps)
    once, again = run(match, rows), run_in_batches(match, rows, seed)
    assert [row for row in once if not row[0]] == [row for row in again if not row[0]]
    assert sum(row[0] for row in once) == sum(row[0] for row in again)


@pytest.mark.parametrize("pattern", ["A", "B A", "A -> C"])
def test_masks_are_by_the_pattern_s_own_symbols(pattern: str) -> None:
    match = Match(pattern)
    assert [mask_of(1 << SYMBOLS.index(name), match) for name in match.symbols] == [
        1 << place for place in range(len(match.symbols))
    ]
    assert masked([(0, 0, 0, 0)], match) == [(0, 0, 0, 0)]
