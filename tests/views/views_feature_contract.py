"""What every view store does for views that ask for more: time-to-live, indexes, history, shadows."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from headwater.testing.clock import ManualClock
from headwater.views import (
    Change,
    Condition,
    HistoryGone,
    Query,
    StoredChange,
    StoredRow,
    UnknownView,
    Version,
    ViewDefinition,
    ViewStore,
)
from headwater.views.conditions import cursor_value, matches

from .views_contract import Open, row

START = 1_700_000_000_000
SALES = ViewDefinition("sales", ("country",))


FAR = ("1e999999999", "-1e999999999", "-1e99999999999999999999", "1e-99999999999999999999")
"""Numbers further from zero, or closer to it, than any that a row holds."""


class FeatureContract:
    """A backend's class has a fixture `reopen`, which opens the same store, anew at each call."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock(START)

    @pytest.fixture
    def store(self, reopen: Open, clock: ManualClock) -> ViewStore:
        return reopen(clock=clock)

    # Time-to-live

    def test_a_row_leaves_when_its_time_has_run_out_and_the_feed_says_so(
        self, store: ViewStore, clock: ManualClock
    ) -> None:
        store.define(ViewDefinition("sales", ("country",), ttl_ms=1000))
        store.commit("q", 0, "sales", [Change("DE", row(n=1)), Change("FR", row(n=1))])
        clock.advance(600)
        store.commit("q", 1, "sales", [Change("FR", row(n=2))])
        clock.advance(399)
        assert store.expire() == 0
        clock.advance(1)
        assert store.expire() == 1
        assert store.changes("sales", 3) == [StoredChange(4, "DE", None)]
        assert [found.key for found in store.rows("sales")] == ["FR"]
        assert store.count("sales") == 1

    def test_a_row_written_again_as_it_was_lives_on(self, store: ViewStore, clock: ManualClock) -> None:
        store.define(ViewDefinition("sales", ("country",), ttl_ms=1000))
        store.commit("q", 0, "sales", [Change("DE", row(n=1)), Change("FR", row(n=1))])
        clock.advance(600)
        store.commit("q", 1, "sales", [Change("DE", row(n=1))])
        assert store.token("sales") == 2
        clock.advance(600)
        assert store.expire() == 1
        assert [found.key for found in store.rows("sales")] == ["DE"]

    def test_a_commit_expires_its_own_view(self, store: ViewStore, clock: ManualClock) -> None:
        store.define(ViewDefinition("sales", ("country",), ttl_ms=1000))
        store.define(ViewDefinition("other", ("country",), ttl_ms=1000))
        store.commit("q", 0, "sales", [Change("DE", row(n=1))])
        store.commit("p", 0, "other", [Change("DE", row(n=1))])
        clock.advance(1000)
        store.commit("q", 1, "sales", [])
        assert (store.count("sales"), store.count("other")) == (0, 1)

    def test_a_time_to_live_given_later_counts_for_all_rows(
        self, store: ViewStore, clock: ManualClock
    ) -> None:
        store.define(SALES)
        store.commit("q", 0, "sales", [Change("DE", row(n=1))])
        clock.advance(5000)
        assert store.expire() == 0
        store.define(ViewDefinition("sales", ("country",), ttl_ms=5000))
        assert store.expire() == 1
        assert store.definitions() == [ViewDefinition("sales", ("country",), ttl_ms=5000)]

    # Indexes

    @pytest.mark.parametrize("indexes", [(), ("country", "n", "window.start")])
    def test_filters_and_orders_answer_the_same_with_indexes(
        self, store: ViewStore, indexes: tuple[str, ...]
    ) -> None:
        store.define(ViewDefinition("sales", ("id",), indexes=indexes))
        values = [None, -7, -0.5, 0, 2, 10, 1e300, "2", "", "DE", "De", "Ä", True, False, "it's"]
        rows = [Change(f"{n:02}", row(n=value, country="DE")) for n, value in enumerate(values)]
        rows += [Change("x", row(window={"start": "2026"})), Change("y", row(n="gone"))]
        store.commit("q", 0, "sales", rows)
        store.commit("q", 1, "sales", [Change("y", None), Change("04", row(n=3, country="FR"))])

        def keys(**query: object) -> str:
            return " ".join(found.key for found in store.read("sales", Query(**query)).rows)  # type: ignore[arg-type]

        assert keys(where={"n": "2"}) == "07"
        assert keys(where={"n": "3"}) == "04"
        assert keys(where={"n": "-0.5"}) == "02"
        assert keys(where={"n": "true"}) == "12"
        assert keys(where={"n": "null"}) == "00 x"
        assert keys(where={"n": "it's"}) == "14"
        assert keys(where={"n": "1e300"}) == "06"
        assert keys(where={"country": "FR"}) == "04"
        assert keys(where={"country": "DE", "n": "10"}) == "05"
        assert keys(where={"window.start": "2026"}) == "x"
        up = "00 x 01 02 03 13 12 04 05 06 08 07 09 10 14 11"
        assert keys(order="n") == up
        assert keys(order="n", limit=3) == "00 x 01"
        down = "11 14 10 09 07 08 06 05 04 12 03 13 02 01 00 x"
        assert keys(order="n", descending=True) == down
        assert keys(order="n", where={"country": "FR"}) == "04"
        assert keys(order="country", where={"n": "null"}) == "x 00"

    @pytest.mark.parametrize("indexes", [(), ("n",)])
    def test_ranges_and_sets_answer_as_rows_looked_at_one_by_one(
        self, store: ViewStore, indexes: tuple[str, ...]
    ) -> None:
        store.define(ViewDefinition("sales", ("id",), indexes=indexes))
        values = [
            None,
            -7,
            -0.5,
            0,
            2,
            10,
            "2",
            "10",
            "",
            "DE",
            "De",
            "Ä",
            True,
            False,
            [1],
            {"a": 1},
            "x" * 600,
        ]
        rows = {f"{n:02}": {"n": value} for n, value in enumerate(values)} | {"17": {}}
        store.commit("q", 0, "sales", [Change(key, row(**columns)) for key, columns in rows.items()])
        conditions = [
            Condition("n", compare, (text,))
            for compare in ("lt", "lte", "gt", "gte")
            for text in ("0", "2", "-0.5", "10", "DE", "", "true", "x" * 600, *FAR)
        ]
        conditions += [
            Condition("n", "in", each)
            for each in [("2", "DE"), ("null", "true"), ("10",), ("-7", ""), *[(text,) for text in FAR]]
        ]
        for condition in conditions:
            query = Query(conditions=(condition,))
            found = [each.key for each in store.read("sales", query).rows]
            assert found == [key for key in rows if matches(rows[key], query)], condition
        both = Query(conditions=(Condition("n", "gte", ("0",)), Condition("n", "lt", ("10",))))
        assert [each.key for each in store.read("sales", both).rows] == ["03", "04"]

    @pytest.mark.parametrize("indexes", [(), ("n",)])
    @pytest.mark.parametrize("descending", [False, True])
    def test_ordered_pages_go_on_behind_one_another(
        self, store: ViewStore, indexes: tuple[str, ...], *, descending: bool
    ) -> None:
        store.define(ViewDefinition("sales", ("id",), indexes=indexes))
        values = [None, 2, 2, 2.5, "b", "a", "a", True, None, -3, "", 0]
        store.commit("q", 0, "sales", [Change(f"{n:02}", row(n=value)) for n, value in enumerate(values)])
        whole = store.read("sales", Query(order="n", descending=descending)).rows
        for limit in (1, 2, 5):
            pages: list[StoredRow] = []
            while True:
                last = pages[-1] if pages else None
                query = Query(
                    order="n",
                    descending=descending,
                    after=last.key if last else None,
                    after_value=cursor_value(last.row, "n") if last else None,
                    limit=limit,
                )
                page = store.read("sales", query).rows
                pages += page
                if len(page) < limit:
                    break
            assert pages == whole

    @pytest.mark.parametrize("indexes", [(), ("n",)])
    def test_numbers_of_many_digits_are_told_apart(self, store: ViewStore, indexes: tuple[str, ...]) -> None:
        store.define(ViewDefinition("sales", ("id",), indexes=indexes))
        first = 1_800_000_000_000_000_000  # as many systems number what they have
        numbers = [*range(first, first + 7), 2**53 + 1, 2**63 - 1, -(2**63), 2**64, 2**64 + 1]
        numbers += [Decimal(f"0.1234567890123456789{n}") for n in range(4)]
        rows = {f"{n:02}": f'{{"n":{number}}}' for n, number in enumerate(numbers)}
        store.commit("q", 0, "sales", [Change(key, text) for key, text in rows.items()])
        for place, number in enumerate(numbers[:10]):
            for query in (
                Query(where={"n": str(number)}),
                Query(conditions=(Condition("n", "in", (str(number),)),)),
                Query(
                    conditions=(Condition("n", "gte", (str(number),)), Condition("n", "lte", (str(number),)))
                ),
            ):
                assert [each.key for each in store.read("sales", query).rows] == [f"{place:02}"], query
                assert [key for key in rows if matches(json.loads(rows[key]), query)] == [f"{place:02}"]
        for descending in (False, True):
            whole = store.read("sales", Query(order="n", descending=descending)).rows
            pages: list[StoredRow] = []
            while len(pages) < len(whole):
                behind = (
                    {"after": pages[-1].key, "after_value": cursor_value(pages[-1].row, "n")} if pages else {}
                )
                pages += store.read("sales", Query(order="n", descending=descending, limit=1, **behind)).rows  # type: ignore[arg-type]
                assert pages == whole[: len(pages)]

    def test_an_index_made_later_holds_what_was_there(self, store: ViewStore) -> None:
        store.define(SALES)
        store.commit("q", 0, "sales", [Change(f"{n}", row(n=n % 3)) for n in range(9)])
        store.define(ViewDefinition("sales", ("country",), indexes=("n",)))
        store.commit("q", 1, "sales", [Change("1", row(n=2)), Change("9", row(n=1))])
        found = store.read("sales", Query(where={"n": "1"})).rows
        assert [each.key for each in found] == ["4", "7", "9"]
        store.define(SALES)
        store.commit("q", 2, "sales", [Change("4", None)])
        assert [each.key for each in store.read("sales", Query(where={"n": "1"})).rows] == ["7", "9"]

    def test_a_long_text_can_be_indexed(self, store: ViewStore) -> None:
        store.define(ViewDefinition("sales", ("country",), indexes=("text",)))
        long = ["x" * 9000 + end for end in "ab"]
        store.commit("q", 0, "sales", [Change(text[-1], row(text=text)) for text in long])
        assert [found.key for found in store.read("sales", Query(where={"text": long[1]})).rows] == ["b"]

    # History

    def test_the_view_as_it_was(self, store: ViewStore, clock: ManualClock) -> None:
        store.define(ViewDefinition("sales", ("country",), history_ms=10_000))
        store.commit("q", 0, "sales", [Change("DE", row(n=1)), Change("FR", row(n=1))])
        clock.advance(100)
        store.commit("q", 1, "sales", [Change("DE", row(n=2)), Change("IT", row(n=2))])
        clock.advance(100)
        store.commit("q", 2, "sales", [Change("DE", None), Change("IT", row(n=3)), Change("FR", row(n=1))])

        def at(ms: int, **query: object) -> list[tuple[str, int]]:
            found = store.read("sales", Query(at=START + ms, **query)).rows  # type: ignore[arg-type]
            return [(each.key, json.loads(each.row)["n"]) for each in found]

        assert at(0) == at(99) == [("DE", 1), ("FR", 1)]
        assert at(100) == at(199) == [("DE", 2), ("FR", 1), ("IT", 2)]
        assert at(200) == at(9999) == [("FR", 1), ("IT", 3)]
        assert at(150, where={"n": "2"}) == [("DE", 2), ("IT", 2)]
        assert at(150, order="n", descending=True) == [("DE", 2), ("IT", 2), ("FR", 1)]
        assert at(150, after="DE", limit=1) == [("FR", 1)]

    def test_what_a_row_was(self, store: ViewStore, clock: ManualClock) -> None:
        store.define(ViewDefinition("sales", ("country",), history_ms=10_000))
        for epoch, n in enumerate((1, 2, None, 4)):
            store.commit("q", epoch, "sales", [Change("DE", None if n is None else row(n=n))])
            clock.advance(100)
        assert store.history("sales", "DE") == [
            Version(START + 300, None, row(n=4)),
            Version(START + 100, START + 200, row(n=2)),
            Version(START, START + 100, row(n=1)),
        ]
        assert store.history("sales", "DE", limit=1) == [Version(START + 300, None, row(n=4))]
        assert store.history("sales", "D") == store.history("sales", "DEU") == []

    def test_history_is_cut_and_says_where_it_begins(self, store: ViewStore, clock: ManualClock) -> None:
        store.define(ViewDefinition("sales", ("country",), history_ms=1000))
        store.commit("q", 0, "sales", [Change("DE", row(n=1))])
        clock.advance(500)
        store.commit("q", 1, "sales", [Change("DE", row(n=2))])
        clock.advance(1200)
        store.commit("q", 2, "sales", [Change("DE", row(n=3))])
        assert [version.row for version in store.history("sales", "DE")] == [row(n=3), row(n=2)]
        with pytest.raises(HistoryGone, match=r"begins at 2023-11-14T22:13:20.700Z: ask for a later moment"):
            store.read("sales", Query(at=START + 699))
        assert [found.row for found in store.read("sales", Query(at=START + 700)).rows] == [row(n=2)]

    def test_a_view_without_history_says_how_to_get_one(self, store: ViewStore) -> None:
        store.define(SALES)
        with pytest.raises(HistoryGone, match=r"sales keeps no history: declare it with @app\.view"):
            store.read("sales", Query(at=START))
        with pytest.raises(HistoryGone):
            store.history("sales", "DE")

    def test_history_begins_when_it_is_asked_for(self, store: ViewStore, clock: ManualClock) -> None:
        store.define(SALES)
        store.commit("q", 0, "sales", [Change("DE", row(n=1))])
        clock.advance(100)
        store.define(ViewDefinition("sales", ("country",), history_ms=1000))
        clock.advance(100)
        store.commit("q", 1, "sales", [Change("DE", row(n=2))])
        assert [found.row for found in store.read("sales", Query(at=START + 100)).rows] == [row(n=1)]
        with pytest.raises(HistoryGone):
            store.read("sales", Query(at=START + 99))

    def test_a_clock_set_back_does_not_turn_history_round(self, store: ViewStore, clock: ManualClock) -> None:
        store.define(ViewDefinition("sales", ("country",), history_ms=10_000))
        clock.advance(500)
        store.commit("q", 0, "sales", [Change("DE", row(n=1))])
        clock.jump(-300)
        store.commit("q", 1, "sales", [Change("DE", row(n=2))])
        clock.jump(400)
        store.commit("q", 2, "sales", [Change("DE", row(n=3))])
        assert [(v.since, v.until) for v in store.history("sales", "DE")] == [
            (START + 600, None),
            (START + 500, START + 600),
        ]

    def test_what_ran_out_is_in_the_history(self, store: ViewStore, clock: ManualClock) -> None:
        store.define(ViewDefinition("sales", ("country",), ttl_ms=100, history_ms=1000))
        store.commit("q", 0, "sales", [Change("DE", row(n=1))])
        clock.advance(100)
        store.expire()
        assert store.history("sales", "DE") == [Version(START, START + 100, row(n=1))]
        assert len(store.read("sales", Query(at=START + 99)).rows) == 1

    # Shadows

    def test_a_shadow_takes_the_place_of_its_view_and_the_feed_tells_the_differences(
        self, store: ViewStore, clock: ManualClock
    ) -> None:
        store.define(ViewDefinition("sales", ("country",), indexes=("n",), history_ms=1000))
        store.commit("q", 9, "sales", [Change(key, row(n=1)) for key in ("DE", "FR", "IT")])
        shadow = store.shadow("sales", "q.rebuild")
        assert store.has_shadow("sales")
        clock.advance(10)
        store.commit("q.rebuild", 0, shadow, [Change("DE", row(n=1)), Change("FR", row(n=5))])
        store.commit("q.rebuild", 1, shadow, [Change("ES", row(n=6)), Change("XX", row(n=6))])
        store.commit("q.rebuild", 2, shadow, [Change("XX", None)])
        assert store.count("sales") == 3
        assert [view.name for view in store.definitions()] == ["sales"]
        assert store.tokens() == {"sales": 3}
        assert store.swap("sales", query="q", shadow_query="q.rebuild") == 3
        assert store.changes("sales", 3) == [
            StoredChange(4, "ES", row(n=6)),
            StoredChange(5, "FR", row(n=5)),
            StoredChange(6, "IT", None),
        ]
        assert [found.key for found in store.rows("sales")] == ["DE", "ES", "FR"]
        assert [found.key for found in store.read("sales", Query(where={"n": "5"})).rows] == ["FR"]
        assert (store.epoch("q"), store.epoch("q.rebuild"), store.count("sales")) == (2, -1, 3)
        assert not store.has_shadow("sales")
        assert [found.key for found in store.read("sales", Query(at=START)).rows] == ["DE", "FR", "IT"]
        assert store.commit("q", 3, "sales", [Change("DE", row(n=7))])

    def test_a_shadow_begun_again_is_empty(self, store: ViewStore) -> None:
        store.define(SALES)
        store.commit("q", 0, "sales", [Change("DE", row(n=1))])
        shadow = store.shadow("sales", "q.rebuild")
        store.commit("q.rebuild", 4, shadow, [Change("FR", row(n=1))])
        assert store.shadow("sales", "q.rebuild") == shadow
        assert (store.count(shadow), store.epoch("q.rebuild")) == (0, -1)
        assert store.swap("sales", query="q", shadow_query="q.rebuild") == 1
        assert (store.count("sales"), store.epoch("q")) == (0, -1)

    def test_a_shadow_that_is_discarded_leaves_nothing(self, store: ViewStore) -> None:
        store.define(SALES)
        shadow = store.shadow("sales", "q.rebuild")
        store.commit("q.rebuild", 0, shadow, [Change("FR", row(n=1))])
        store.discard("sales", "q.rebuild")
        store.discard("sales", "q.rebuild")
        assert (store.has_shadow("sales"), store.epoch("q.rebuild")) == (False, -1)
        with pytest.raises(UnknownView):
            store.count(shadow)
        with pytest.raises(UnknownView):
            store.swap("sales", query="q", shadow_query="q.rebuild")
        with pytest.raises(UnknownView):
            store.shadow("nothing", "q")
