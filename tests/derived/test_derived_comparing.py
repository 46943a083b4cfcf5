"""Two sides of a table compared: what differs is told, what is on its way is not."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.app.schema import parse
from headwater.cli import capture_verify
from headwater.derived.comparing import Difference, Report, Side, compare, pieces
from headwater.derived.decode import KeyText
from headwater.derived.sides import source_rows

Rows = dict[str, dict[str, Any]]


def side(*rows: Rows) -> Side:
    """Return a side that is one thing in the first pass, and another in the next; and stays what it was last."""
    turns = itertools.chain(rows, itertools.repeat(rows[-1]))

    def read() -> Any:
        return pieces(((key, json.dumps(row)) for key, row in next(turns).items()), 3)

    return read


def compared(source: list[Rows], derived: list[Rows], most: int = 20) -> Report:
    return compare(side(*source), side(*derived), most=most, wait_seconds=0)


def test_equal_sides_are_read_once() -> None:
    rows = {str(n): {"id": n, "name": "x"} for n in range(1000)}
    assert compared([rows], [rows]) == Report(1000)


def test_each_kind_of_difference() -> None:
    source: Rows = {"1": {"a": 1, "b": None}, "2": {"a": 2, "b": 2}, "3": {"a": 3, "b": 3}}
    derived: Rows = {"1": {"a": 1.0}, "2": {"a": 2, "b": 5, "c": 1}, "4": {"a": 4}}
    report = compared([source, source], [derived, derived])
    assert (report.missing, report.extra, report.different, report.is_equal) == (1, 1, 1, False)
    assert report.first == (
        Difference("different", "2", {"b": (2, 5)}),
        Difference("missing", "3"),
        Difference("extra", "4"),
    )
    assert [str(each) for each in report.first] == ["different 2: b is 2, not 5", "missing 3", "extra 4"]


def test_what_is_on_its_way_is_no_difference() -> None:
    before, after = {"1": {"a": 1}, "2": {"a": 1}}, {"1": {"a": 2}, "2": {"a": 1}}
    assert compared([after, after], [before, after]) == Report(2)
    # A row that is written all the time differs each time, in another way.
    later = {"1": {"a": 3}, "2": {"a": 1}}
    assert compared([after, later], [before, after]) == Report(2, changing=1)


def test_what_lags_behind_is_waited_for_as_long_as_it_catches_up() -> None:
    source = {str(n): {"a": n} for n in range(10)}
    turns = [{key: source[key] for key in list(source)[:count]} for count in (2, 4, 6, 8, 10)]
    assert compared([source], turns) == Report(10)
    assert compared([source], turns[:3]).missing == 4


def test_only_the_first_are_told() -> None:
    rows: Rows = {f"{n:03}": {"id": n} for n in range(500)}
    report = compared([rows, rows], [{}, {}], most=2)
    assert (report.missing, [each.key for each in report.first]) == (500, ["000", "001"])


rows_of = st.dictionaries(
    st.sampled_from("abcdefg"), st.fixed_dictionaries({"n": st.integers(0, 2), "t": st.sampled_from("xy")})
)


@settings(max_examples=40, deadline=None)
@given(rows_of, rows_of)
def test_it_finds_what_a_comparison_in_memory_finds(source: Rows, derived: Rows) -> None:
    report = compared([source, source], [derived, derived])
    both = source.keys() & derived.keys()
    assert (report.rows, report.changing) == (len(source), 0)
    assert report.missing == len(source.keys() - derived.keys())
    assert report.extra == len(derived.keys() - source.keys())
    assert report.different == sum(source[key] != derived[key] for key in both)


def test_a_row_that_is_staged_and_taken_back() -> None:
    def derived() -> Any:
        yield [("1", '{"a": 1}'), ("2", '{"a": 2}')]
        yield [("2", None), ("1", '{"a": 5}')]

    assert compare(side({"1": {"a": 5}}), derived, wait_seconds=0) == Report(1)


def test_rows_of_a_database() -> None:
    table = [(["id", 'na"me'], [(b"1", b'"x"'), (b"2", None)])]
    assert [*source_rows(table, KeyText(["id"], parse("id int")))] == [
        [("1", '{"id":1,"na\\"me":"x"}'), ("2", '{"id":2,"na\\"me":null}')]
    ]


def test_what_a_person_sees(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_verify, "wants_json", lambda as_json: as_json)
    source: Rows = {"1": {"year": 2026}, "3": {"year": 1}}
    derived: Rows = {"1": {"year": 2025}, "2": {"year": 1}, "3": {"year": 1}}
    pair = capture_verify.Pair("articles", "the cache c", side(source), side(derived))
    capture_verify.show(pair, compared([source, source], [derived, derived]), as_json=False)
    capture_verify.show(pair, compared([source], [source]), as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "different 1: year is 2026, not 2025",
        "extra 2",
        "articles and the cache c: 2 rows: 0 missing, 1 extra, 1 different",
        "articles and the cache c: 2 rows, all the same",
    ]
