"""What a key may hold, what is kept of it, and what is refused before a row is seen."""

from __future__ import annotations

import doctest
import pickle
from types import ModuleType
from typing import Any

import pytest

from headwater.pipeline.keyed.logic import unpack
from headwater.pipeline.patterns import automaton, errors, expressions, partial, skip, syntax, types
from headwater.pipeline.patterns.compaction import needed_rows
from headwater.pipeline.patterns.engine import Match
from headwater.pipeline.patterns.errors import PatternError
from headwater.pipeline.patterns.table import Table

from .test_match import FAR, MINUTE, SECOND, prices, rows_of


class TestLimits:
    def test_partial_matches_over_the_limit_are_dropped_and_counted_the_oldest_first(self) -> None:
        match = Match(
            "a ->> b", ("name",), within=MINUTE, limit=3, skip="to next row", measures={"a": "a.name"}
        )
        rows = rows_of(match, "a1 a2 a3 a4 a5 b")
        out = match.step(("k",), None, rows, FAR).out
        assert out == [(0, "k", "a3"), (0, "k", "a4"), (0, "k", "a5"), (2, "k", None)]

    def test_so_are_runs_with_conditions(self) -> None:
        conditions = {"b": "name > first(a.name)"}
        match = Match(
            "a ->> b", ("name",), conditions=conditions, limit=3, skip="no skip", measures={"a": "a.name"}
        )
        out = match.step(("k",), None, rows_of(match, "a1 a2 a3 a4 a5 b9"), FAR).out
        assert out == [(0, "k", "a3"), (0, "k", "a4"), (0, "k", "a5"), (2, "k", None)]

    def test_of_one_start_the_least_preferred_are_dropped(self) -> None:
        conditions = {"c": "sum(b.x) > 0"}
        match = Match("a (b | c){0,9} d", ("x",), conditions=conditions, limit=10)
        rows: list[Any] = [(0, 0, 0, 1, 1), *[(n, 0, n, 6, n) for n in range(1, 9)], (9, 0, 9, 8, 0)]
        out = match.step(("k",), None, rows, FAR).out
        assert out[0] == (0, "k", 0, 9, 10)
        assert out[1][0] > 0

    def test_an_ambiguous_pattern_costs_no_more_than_a_plain_one(self) -> None:
        rows: list[Any] = [(n, 0, n, 3, n) for n in range(2000)]
        for conditions in ({}, {"b": "count(b) > 0"}):
            match = Match("((a | a)* (a | a)*)* b", ("x",), conditions=conditions, within=50)
            assert match.step(("k",), None, rows, FAR).out[0][:2] == (0, "k")

    @pytest.mark.parametrize("conditions", [{}, {"b": "count(a) > 0"}])
    def test_a_match_that_grows_without_end_is_given_up(
        self, conditions: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(partial, "MOST_ROWS", 200)
        match = Match(
            "a+ b", ("x",), conditions=conditions, measures={"rows": "count(*)"}, skip="to next row"
        )
        state, largest = None, 0
        out: list[Any] = []
        for at in range(0, 1000, 20):
            rows: list[Any] = [(n, 0, n, 1, n) for n in range(at, at + 20)]
            step = match.step(("k",), state, rows, at + 20)
            state, out = step.state, out + step.out
            largest = max(largest, len(state or b""))
        assert 700 < sum(row[0] for row in out) < 2000
        assert largest < 10_000
        last: list[Any] = [(1000, 0, 0, 2, 0)]
        assert match.step(("k",), state, last, FAR).out[0][2] > 5

    def test_a_key_with_a_null_has_no_results(self) -> None:
        match = Match("a", ("name",))
        assert match.step((1, None), None, rows_of(match, "a"), FAR) == (None, [], None)


class TestState:
    def test_nothing_is_kept_of_rows_that_no_partial_match_needs(self) -> None:
        match = Match("a -> b -> c", ("name",), within=1000 * SECOND)
        state = match.step(
            ("k",), None, rows_of(match, "a " + "x " * 500 + "b " + "x " * 400), FAR // 10**6
        ).state
        assert state is not None
        rows = unpack(state)[4][0]
        assert [row[4] for row in rows] == ["a", "b"]

    def test_what_was_taken_in_vain_goes(self) -> None:
        match = Match("a ->> b c", ("name",), measures={"names": "collect(name)"})
        state, largest = None, 0
        for at in range(0, 3000, 30):
            rows: list[Any] = [
                (n, 0, n, (1 if n == 0 else 2) if n % 3 == 0 else 0, str(n)) for n in range(at, at + 30)
            ]
            state = match.step(("k",), state, rows, at + 30).state
            largest = max(largest, len(state or b""))
        assert largest < 1500
        last: list[Any] = [(3000, 0, 0, 2, "b"), (3001, 0, 0, 4, "c")]
        assert match.step(("k",), state, last, FAR).out == [(0, "k", ["0", "b", "c"])]

    def test_a_row_whose_absence_would_open_a_way_stays(self) -> None:
        def needed(pattern: str, *masks: int) -> set[int]:
            rows: list[Any] = [(number, (number, 0, number, mask)) for number, mask in enumerate(masks)]
            return needed_rows(Table(automaton.compile_pattern(pattern)), rows, [(0, 100)])

        assert needed("b (-> b)*? c", 1, 0) == {0, 1}
        assert needed("a ->> b c", 1, 2, 0, 2, 0) == {0}

    def test_runs_share_their_rows(self) -> None:
        conditions = {"b": "name > first(a.name)"}
        match = Match("a (->> b)+ c", ("name",), conditions=conditions, skip="no skip", within=FAR)
        step = match.step(("k",), None, rows_of(match, "a b1 b2 b3 b4 x x x"), FAR)
        assert step.state is not None
        _, rows, taken, starts = unpack(step.state)[4]
        assert [row[4] for row in rows] == ["a", "b1", "b2", "b3", "b4"]
        assert len(taken) == 16
        assert sum(len(start[3]) for start in starts) == 16

    def test_it_stays_small_over_many_rows(self) -> None:
        match = Match("small{3,} large", ("amount",), within=10 * SECOND)
        state, largest = None, 0
        for at in range(0, 10_000, 100):
            rows: list[Any] = [(n * SECOND, 0, n, 1, 1.5) for n in range(at, at + 100)]
            state = match.step(("k",), state, rows, (at + 100) * SECOND).state
            largest = max(largest, len(state or b""))
        assert largest < 1000

    def test_without_within_one_start_stands_for_all_that_go_the_same_way(self) -> None:
        match = Match("a -> b", ("name",), measures={"a": "a.name"})
        rows: list[Any] = [(n, 0, n, 1, str(n)) for n in range(20_000)]
        step = match.step(("k",), None, rows, FAR // 10)
        assert step.state is not None
        assert len(step.state) < 100
        last: list[Any] = [(FAR // 10, 0, 0, 2, "b")]
        assert match.step(("k",), step.state, last, FAR).out == [(0, "k", "0")]

    def test_the_number_of_matches_and_the_row_before_outlive_the_rest(self) -> None:
        match = Match(
            "a", ("name",), measures={"n": "match_number()"}, conditions={"a": "name <> prev(name)"}
        )
        first = match.step(("k",), None, rows_of(match, "a1 a2"), FAR)
        assert first.out == [(0, "k", 1)]
        again: list[Any] = [(FAR, 0, 1, 1, "a2"), (FAR + 1, 0, 2, 1, "a3")]
        assert match.step(("k",), first.state, again, FAR + 2).out == [(0, "k", 2)]

    def test_it_travels_to_workers(self) -> None:
        match = Match(
            "a b", ("name",), conditions={"b": "name > a.name"}, within=5, measures={"n": "count(*)"}
        )
        again = pickle.loads(pickle.dumps(match))
        rows: list[Any] = [(0, 0, 0, 1, "1"), (1, 0, 1, 2, "2")]
        assert again.step(("k",), None, rows, FAR) == match.step(("k",), None, rows, FAR)
        assert (again.symbols, again.measures) == (("a", "b"), ("n",))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"skip": "to first z"}, "no symbol 'z'; it has a, b"),
        ({"skip": "somewhere"}, "use 'past last row', 'to next row', 'to first a'"),
        ({"within": -1}, "within=-1 µs is negative"),
        ({"limit": 0}, "give at least 1"),
        ({"conditions": {"z": "name = 1"}}, "define= has z, which the pattern has not; its symbols are a, b"),
        ({"conditions": {"b": "collect(a.name) = 1"}}, "collect is for measures"),
        ({"conditions": {"b": "match_number() = 1"}}, "match_number() is for measures"),
        ({"conditions": {"b": "sum(a.name)"}}, "is a value and no condition"),
        (
            {"conditions": {"b": "price > 1"}},
            "the condition of b: there is no column 'price'; the columns are name",
        ),
        ({"measures": {"x": "prev(name)"}}, "measure x: prev is for conditions"),
        ({"measures": {"x": "name"}}, "measure x: which row's name? write last(name) or A.name"),
    ],
)
def test_what_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(PatternError) as raised:
        Match("a b", ("name",), **options)
    assert says in str(raised.value)


COLUMNS = {
    "n": "int",
    "x": "double",
    "d": "decimal(10,2)",
    "s": "string",
    "at": "timestamp",
    "tags": "array<string>",
}


@pytest.mark.parametrize(
    ("measure", "kind"),
    [
        ("count(*)", "bigint"),
        ("sum(a.n)", "bigint"),
        ("sum(a.d)", "double"),
        ("avg(n)", "double"),
        ("max(a.s)", "string"),
        ("last(a.n)", "int"),
        ("last(a.tags)", "array<string>"),
        ("collect(a.at)", "array<timestamp>"),
        ("start()", "timestamp"),
        ("end() - start()", "bigint"),
        ("start() + 5 minutes", "timestamp"),
        ("end() - start() > 5 minutes and a.s = 'x'", "boolean"),
        ("sum(n) / 2", "double"),
        ("sum(n) % 2", "bigint"),
        ("sum(n) * 1.5", "double"),
        ("coalesce(null, last(n), 2.5)", "double"),
        ("upper(a.s)", "string"),
        ("-abs(a.x)", "double"),
        ("classifier()", "string"),
        ("collect(classifier())", "array<string>"),
        ("match_number()", "bigint"),
        ("a.s in ('x', null)", "boolean"),
        ("null", "void"),
    ],
)
def test_the_types_of_measures(measure: str, kind: str) -> None:
    assert Match("a", tuple(COLUMNS), measures={"m": measure}).types(COLUMNS) == (kind,)


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ("n > 'x'", "'>' takes values of one kind and was given int and string"),
        ("s + 1 > 2", "'+' takes numbers"),
        ("at > 5 minutes", "'>' takes values of one kind"),
        ("at - 0.5 > at", "a duration as in 5 minutes"),
        ("sum(s) > 1", "sum takes numbers, and s is a string"),
        ("max(tags) is null", "values with an order"),
        ("tags = tags", "values of one kind"),
        ("n and s = 'x'", "'and' takes conditions"),
        ("upper(n) = 'X'", "'upper' takes text"),
        ("s", "is a value and no condition"),
    ],
)
def test_conditions_that_do_not_fit_the_columns_are_refused(condition: str, says: str) -> None:
    match = Match("a b", tuple(COLUMNS), conditions={"b": condition})
    with pytest.raises(PatternError) as raised:
        match.types(COLUMNS)
    assert "the condition of b" in str(raised.value)
    assert says in str(raised.value)


def test_values_that_cannot_be_compared_are_unknown() -> None:
    assert prices("a b", [1, "x", 3], {"b": "price > a.price"}) == []
    assert prices("a b", [1, "x"], {}, measures={"m": "a.price + b.price"}) == [(None,)]


@pytest.mark.parametrize(
    "module", [automaton, errors, expressions, skip, syntax, types], ids=lambda each: each.__name__
)
def test_examples_in_docstrings(module: ModuleType) -> None:
    assert doctest.testmod(module).failed == 0
