"""What MATCH_RECOGNIZE and FlinkCEP document, and what time does."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.pipeline.patterns.engine import Match

SECOND = 1_000_000
MINUTE = 60 * SECOND
FAR = 10**15


def rows_of(match: Match, events: str, seconds: int = 1) -> list[Any]:
    """Rows from names like b1, which are of the symbol b, one every so many seconds."""
    rows = []
    for number, name in enumerate(events.split()):
        mask = sum(
            1 << place for place, symbol in enumerate(match.symbols) if symbol == name.rstrip("0123456789")
        )
        rows.append((number * seconds * SECOND, 0, number, mask, name))
    return rows


def matches(pattern: str, events: str, skip: str = "past last row", **options: Any) -> list[str]:
    match = Match(pattern, ("name",), measures={"names": "collect(name)"}, skip=skip, **options)
    first = match.step(("k",), None, rows_of(match, events), 0)
    return [" ".join(row[2]) for row in match.step(("k",), first.state, [], FAR).out]


def prices(pattern: str, values: list[Any], conditions: dict[str, str], **options: Any) -> list[Any]:
    """The results of a pattern over prices, one a second, where symbols hold by their conditions alone."""
    match = Match(pattern, ("price",), conditions=conditions, **options)
    every = (1 << len(match.symbols)) - 1
    rows: list[Any] = [(number * SECOND, 0, number, every, value) for number, value in enumerate(values)]
    first = match.step(("k",), None, rows, 0)
    return [row[2:] for row in match.step(("k",), first.state, [], FAR).out]


class TestFlinkCEP:
    """The examples of its page on contiguity and skip strategies."""

    EVENTS = "a b1 d1 b2 d2 b3 c"

    def test_contiguity_between_two(self) -> None:
        assert matches("a b", "a c b1 b2", "no skip") == []
        assert matches("a -> b", "a c b1 b2", "no skip") == ["a b1"]
        assert matches("a ->> b", "a c b1 b2", "no skip") == ["a b1", "a b2"]

    def test_contiguity_within_loops(self) -> None:
        strict = ["a b1 c", "a b2 c", "a b3 c"]
        relaxed = [*strict, "a b1 b2 c", "a b1 b2 b3 c", "a b2 b3 c"]
        assert sorted(matches("a ->> b+ -> c", self.EVENTS, "no skip")) == sorted(strict)
        assert sorted(matches("a ->> b (-> b)* -> c", self.EVENTS, "no skip")) == sorted(relaxed)
        every = [*relaxed, "a b1 b3 c"]
        assert sorted(matches("a ->> b (->> b)* -> c", self.EVENTS, "no skip")) == sorted(every)

    @pytest.mark.parametrize(
        ("skip", "expected"),
        [
            ("no skip", ["b1 b2 b3 c", "b2 b3 c", "b3 c"]),
            ("to next row", ["b1 b2 b3 c", "b2 b3 c", "b3 c"]),
            ("past last row", ["b1 b2 b3 c"]),
            ("to first b", ["b1 b2 b3 c", "b2 b3 c", "b3 c"]),
            ("to last b", ["b1 b2 b3 c", "b3 c"]),
        ],
    )
    def test_skip_strategies(self, skip: str, expected: list[str]) -> None:
        assert matches("b+ c", "b1 b2 b3 c", skip) == expected

    def test_skip_to_first_of_a_symbol_in_the_middle(self) -> None:
        pattern = "(a | b | c) (b | c) c+ d"
        assert matches(pattern, "a b c1 c2 c3 d", "no skip") == [
            "a b c1 c2 c3 d",
            "b c1 c2 c3 d",
            "c1 c2 c3 d",
        ]
        assert matches(pattern, "a b c1 c2 c3 d", "to first c") == ["a b c1 c2 c3 d", "c1 c2 c3 d"]

    def test_to_next_is_the_preferred_match_as_in_sql(self) -> None:
        assert matches("a b+", "a b1 b2 b3 d", "no skip") == ["a b1", "a b1 b2", "a b1 b2 b3"]
        assert matches("a b+", "a b1 b2 b3 d", "to next row") == ["a b1 b2 b3"]
        assert matches("a b+?", "a b1 b2 b3 d", "to next row") == ["a b1"]

    def test_negation(self) -> None:
        assert matches("a !b c", "a c") == ["a c"]
        assert matches("a !b -> c", "a b c") == []
        assert matches("a !b -> c", "a d b c") == ["a c"]
        assert matches("a -> !b -> c", "a d c") == ["a c"]
        assert matches("a -> !b -> c", "a d b c") == []
        assert matches("a -> !(b | d) -> c", "a d c") == []


class TestMatchRecognize:
    def test_v_shape(self) -> None:
        conditions = {"down": "price < prev(price)", "up": "price > prev(price)"}
        measures = {"top": "strt.price", "bottom": "last(down.price)", "back": "last(up.price)"}
        found = prices("strt down+ up+", [10, 8, 6, 7, 9, 9, 5, 6, 5], conditions, measures=measures)
        assert found == [(10, 6, 9), (9, 5, 6)]

    def test_a_condition_on_the_average_so_far(self) -> None:
        # The row that is tested counts, as in SQL: 1, 1, 4 has the mean 2.
        found = prices(
            "A+ B", [1, 1, 4, 9, 0], {"A": "avg(A.price) < 3"}, measures={"rows": "collect(price)"}
        )
        assert found == [([1, 1, 4, 9],)]

    def test_greedy_and_reluctant(self) -> None:
        assert matches("a b* c?", "a b1 b2 d") == ["a b1 b2"]
        assert matches("a b*? (b | d)", "a b1 b2 d") == ["a b1"]
        assert matches("a{2,3}", "a1 a2 a3 a4 a5 d") == ["a1 a2 a3", "a4 a5"]
        assert matches("a{2,3}?", "a1 a2 a3 a4 a5 d") == ["a1 a2", "a3 a4"]

    def test_alternation_prefers_the_left_even_if_it_is_shorter(self) -> None:
        assert matches("a | a b", "a b c") == ["a"]
        assert matches("a b | a", "a b a c") == ["a b", "a"]

    def test_a_round_that_takes_no_row_is_not_made(self) -> None:
        assert matches("b (a??){0,2}", "b a1 a2 x") == ["b a1 a2"]
        assert matches("b ((a)*?)*", "b a1 a2 x") == ["b a1 a2"]
        assert matches("b (a?){2}", "b a1 x") == ["b a1"]

    def test_a_match_waits_for_those_that_began_before_it(self) -> None:
        match = Match("b | a b a", ("name",), measures={"names": "collect(name)"})
        first = match.step(("k",), None, rows_of(match, "a1 b1"), 2 * SECOND)
        assert first.out == []
        whole: list[Any] = [(2 * SECOND, 0, 2, 2, "a2")]
        assert match.step(("k",), first.state, whole, FAR).out == [(0, "k", ["a1", "b1", "a2"])]
        other: list[Any] = [(2 * SECOND, 0, 2, 0, "x")]
        assert match.step(("k",), first.state, other, FAR).out == [(0, "k", ["b1"])]

    def test_a_start_that_a_match_rules_out_does_not_stand_for_later_ones(self) -> None:
        assert matches("s p* t | s p | p+ q", "s p1 p2 p3 q") == ["s p1", "p2 p3 q"]

    def test_a_symbol_without_a_condition_is_every_row(self) -> None:
        assert prices("any B", [1, 5], {"B": "price > 3"}) == [(0, SECOND, 2)]

    def test_measures(self) -> None:
        measures = {
            "number": "match_number()",
            "from": "start()",
            "to": "end()",
            "last": "classifier()",
            "path": "collect(classifier())",
            "first": "first(A.price)",
            "second": "first(A.price, 1)",
            "none": "first(A.price, 5)",
            "sum": "sum(A.price)",
            "all": "sum(price)",
            "count": "count(A)",
            "values": "count(price)",
            "rows": "count(*)",
            "avg": "avg(A.price)",
            "min": "min(A.price)",
            "max": "max(A.price)",
            "collect": "collect(A.price)",
            "share": "sum(A.price) / sum(price)",
            "high": "max(price) > 100 and B.price is not null",
        }
        conditions = {"A": "price < 10 or price is null", "B": "price > 10"}
        found = prices("A+ B", [4, None, 2, 30], conditions, measures=measures)
        assert [dict(zip(measures, row, strict=True)) for row in found] == [
            {
                "number": 1,
                "from": 0,
                "to": 3 * SECOND,
                "last": "B",
                "path": ["A", "A", "A", "B"],
                "first": 4,
                "second": None,
                "none": None,
                "sum": 6,
                "all": 36,
                "count": 3,
                "values": 3,
                "rows": 4,
                "avg": 3,
                "min": 2,
                "max": 4,
                "collect": [4, None, 2],
                "share": 6 / 36,
                "high": False,
            }
        ]


class TestTime:
    def test_within_is_from_the_first_row_to_the_last_inclusive(self) -> None:
        assert matches("a -> b", "a c c b", within=3 * SECOND) == ["a b"]
        assert matches("a -> b", "a c c b", within=3 * SECOND - 1) == []
        assert matches("a -> b", "a1 a2 c b", within=2 * SECOND) == ["a2 b"]

    def test_a_repetition_with_gaps_ends_with_the_first_row_that_follows_it(self) -> None:
        assert matches("a (-> b)+ -> c", "a c1 b1 x b2 x c2") == ["a b1 b2 c2"]
        assert matches("a (-> b){1,3} -> c", "a b1 c1 b2 c2") == ["a b1 c1"]
        assert matches("a (-> b)+ -> c", "a b1 c1 b2 c2", "no skip") == ["a b1 c1", "a b1 b2 c2"]

    def test_an_open_end_is_reported_when_time_shows_that_nothing_follows(self) -> None:
        match = Match("a b*", ("name",), within=MINUTE, measures={"names": "collect(name)"})
        step = match.step(("k",), None, rows_of(match, "a b"), 5 * SECOND)
        assert (step.out, step.due) == ([], MINUTE)
        assert match.step(("k",), step.state, [], MINUTE).out == []
        last = match.step(("k",), step.state, [], MINUTE + 1)
        assert last == (None, [(0, "k", ["a", "b"])], None)

    def test_no_b_within_five_minutes_is_fired_by_time(self) -> None:
        match = Match("a -> !b for 5 minutes", ("name",), measures={"name": "a.name", "at": "end()"})
        step = match.step(("k",), None, rows_of(match, "a1 c a2", seconds=60), 4 * MINUTE)
        assert (step.out, step.due) == ([], 5 * MINUTE)
        step = match.step(("k",), step.state, [], 5 * MINUTE)
        assert (step.out, step.due) == ([], 5 * MINUTE)
        step = match.step(("k",), step.state, [], 5 * MINUTE + 1)
        assert (step.out, step.due) == ([(0, "k", "a1", 0)], 7 * MINUTE)
        late = [(7 * MINUTE, 0, 9, 2, "b")]
        assert match.step(("k",), step.state, late, FAR) == (None, [], None)

    def test_rows_wait_for_the_watermark_and_are_taken_in_order(self) -> None:
        match = Match("a b", ("name",))
        a, b = rows_of(match, "a b")
        step = match.step(("k",), None, [b], 0)
        assert (step.out, step.due) == ([], SECOND)
        step = match.step(("k",), step.state, [a], SECOND)
        assert (step.out, step.due) == ([], SECOND)
        assert match.step(("k",), step.state, [], SECOND + 1) == (None, [(0, "k", 0, SECOND, 2)], None)

    def test_the_next_look_is_at_whichever_comes_first(self) -> None:
        match = Match("a b*", ("name",), within=MINUTE)
        step = match.step(("k",), None, [*rows_of(match, "a"), (30 * SECOND, 0, 5, 2, "b")], SECOND)
        assert step.due == 30 * SECOND
        step = match.step(("k",), None, [*rows_of(match, "a"), (90 * SECOND, 0, 5, 2, "b")], SECOND)
        assert step.due == MINUTE

    def test_what_is_completed_by_time_comes_in_the_order_of_time(self) -> None:
        match = Match(
            "a -> !c for 5 s | b -> !c for 1 s", ("name",), skip="no skip", measures={"n": "last(name)"}
        )
        out = match.step(("k",), None, rows_of(match, "a b x"), FAR).out
        assert [row[2] for row in out] == ["b", "a"]

    def test_rows_before_what_was_decided_are_left_out(self) -> None:
        match = Match("a b", ("name",))
        a, b = rows_of(match, "a b")
        step = match.step(("k",), None, [b, (9 * SECOND, 0, 9, 0, "x")], 5 * SECOND)
        late = match.step(("k",), step.state, [a], SECOND // 2)
        assert late.out == []
        later: list[Any] = [(2 * SECOND, 0, 7, 1, "a"), (3 * SECOND, 0, 8, 2, "b")]
        again = match.step(("k",), late.state, later, SECOND // 2)
        assert match.step(("k",), again.state, [], FAR).out == []

    def test_rows_of_the_same_time_go_by_partition_and_offset(self) -> None:
        match = Match("a b", ("name",))
        rows: list[Any] = [(7, 1, 3, 2, "b"), (7, 1, 2, 1, "a"), (7, 0, 9, 2, "b")]
        assert len(match.step(("k",), None, rows, 8).out) == 1
        rows = [(7, 1, 3, 1, "a"), (7, 1, 2, 2, "b"), (7, 0, 9, 2, "b")]
        assert match.step(("k",), None, rows, 8).out == []

    def test_times_before_1970(self) -> None:
        match = Match("a b", ("name",))
        rows: list[Any] = [(-5, 0, 0, 1, "a"), (-4, 0, 1, 2, "b")]
        assert match.step(("k",), None, rows, -3).out == [(0, "k", -5, -4, 2)]
