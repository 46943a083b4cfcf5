"""What every view store does, as tests that each backend's test class inherits."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from random import Random

import pytest

from headwater.views import (
    Change,
    Pacing,
    Query,
    StoredChange,
    StoredRow,
    TokenGone,
    UnknownView,
    ViewDefinition,
    ViewError,
    ViewStore,
)
from headwater.views.pacing import Entry, Incident, pace

Open = Callable[..., ViewStore]


def row(**columns: object) -> str:
    return json.dumps(columns)


class StoreContract:
    """A backend's class has a fixture `reopen`, which opens the same store, anew at each call."""

    @pytest.fixture
    def store(self, reopen: Open) -> ViewStore:
        store = reopen()
        store.define(ViewDefinition("sales", ("country",)))
        return store

    def test_an_epoch_changes_rows_feed_and_itself(self, store: ViewStore) -> None:
        assert store.epoch("q") == -1
        assert store.commit("q", 0, "sales", [Change("DE", row(n=1)), Change("FR", row(n=2))])
        assert store.epoch("q") == 0
        assert store.rows("sales") == [StoredRow("DE", row(n=1), 1), StoredRow("FR", row(n=2), 2)]
        assert store.changes("sales", 0) == [StoredChange(1, "DE", row(n=1)), StoredChange(2, "FR", row(n=2))]
        assert (store.count("sales"), store.token("sales"), store.tokens()) == (2, 2, {"sales": 2})

    def test_an_epoch_committed_again_does_nothing(self, store: ViewStore) -> None:
        store.commit("q", 7, "sales", [Change("DE", row(n=1))])
        assert not store.commit("q", 7, "sales", [Change("DE", row(n=99)), Change("XX", row(n=99))])
        assert not store.commit("q", 3, "sales", [Change("XX", row(n=99))])
        assert [found.row for found in store.rows("sales")] == [row(n=1)]
        assert store.token("sales") == 1

    def test_queries_have_epochs_of_their_own(self, store: ViewStore) -> None:
        store.commit("a", 5, "sales", [Change("DE", row(n=1))])
        assert store.commit("b", 0, "sales", [Change("FR", row(n=2))])
        assert (store.epoch("a"), store.epoch("b"), store.count("sales")) == (5, 0, 2)

    def test_a_row_that_stays_the_same_is_no_change(self, store: ViewStore) -> None:
        store.commit("q", 0, "sales", [Change("DE", row(n=1)), Change("FR", row(n=2))])
        store.commit("q", 1, "sales", [Change("DE", row(n=1)), Change("FR", row(n=3))])
        assert store.changes("sales", 2) == [StoredChange(3, "FR", row(n=3))]
        assert store.epoch("q") == 1

    def test_deletes(self, store: ViewStore) -> None:
        store.commit("q", 0, "sales", [Change("DE", row(n=1)), Change("FR", row(n=2))])
        store.commit("q", 1, "sales", [Change("DE", None), Change("never there", None)])
        assert store.changes("sales", 2) == [StoredChange(3, "DE", None)]
        assert store.row("sales", "DE") is None
        assert store.count("sales") == 1

    def test_of_several_changes_of_a_key_the_last_counts(self, store: ViewStore) -> None:
        store.commit("q", 0, "sales", [Change("DE", row(n=1)), Change("DE", None), Change("DE", row(n=3))])
        assert store.changes("sales", 0) == [StoredChange(1, "DE", row(n=3))]

    def test_an_epoch_without_changes_is_kept_too(self, store: ViewStore, reopen: Open) -> None:
        store.commit("q", 0, "sales", [])
        assert reopen().epoch("q") == 0

    def test_changes_that_cannot_be_made_leave_nothing(self, store: ViewStore) -> None:
        def broken() -> list[Change]:
            raise RuntimeError("the worker died")

        with pytest.raises(RuntimeError):
            store.commit("q", 0, "sales", (change for change in broken()))
        with pytest.raises(UnknownView, match="there is no view named nowhere"):
            store.commit("q", 0, "nowhere", [Change("DE", row(n=1))])
        assert store.epoch("q") == -1

    def test_all_of_it_is_there_after_opening_again(self, store: ViewStore, reopen: Open) -> None:
        store.commit("q", 0, "sales", [Change("DE", row(n=1))])
        store.put_status("q", "{}")
        identity = store.identity
        store.close()
        again = reopen()
        assert again.identity == identity
        assert again.rows("sales") == [StoredRow("DE", row(n=1), 1)]
        assert (again.epoch("q"), again.token("sales"), again.statuses()) == (0, 1, {"q": "{}"})

    def test_defining_again_changes_nothing_but_another_key_is_refused(self, store: ViewStore) -> None:
        store.define(ViewDefinition("sales", ("city",)))
        store.define(ViewDefinition("sales", ("country",)))
        store.commit("q", 0, "sales", [Change("DE", row(n=1))])
        store.define(ViewDefinition("sales", ("country",)))
        with pytest.raises(
            ViewError, match=r"sales holds rows by country, not by city.*start its query over with --reset"
        ):
            store.define(ViewDefinition("sales", ("city",)))
        assert store.definitions() == [ViewDefinition("sales", ("country",))]

    def test_pages_by_key(self, store: ViewStore) -> None:
        store.commit("q", 0, "sales", [Change(f"{n:02}", row(n=n)) for n in range(10)])
        first = store.rows("sales", limit=4)
        second = store.rows("sales", after=first[-1].key, limit=4)
        third = store.rows("sales", after=second[-1].key, limit=4)
        assert [found.key for found in first + second + third] == [f"{n:02}" for n in range(10)]

    def test_pages_until_a_token_and_the_feed_since_it_make_the_whole(self, store: ViewStore) -> None:
        store.commit("q", 0, "sales", [Change(f"{n:02}", row(n=n)) for n in range(6)])
        first, token = store.read("sales", Query(limit=3))
        store.commit("q", 1, "sales", [Change("04", row(n=400)), Change("00", None), Change("99", row(n=99))])
        rest = store.read("sales", Query(after=first[-1].key, until=token)).rows
        assert [found.key for found in rest] == ["03", "05"]
        seen: dict[str, str | None] = {found.key: found.row for found in first + rest}
        seen.update((change.key, change.row) for change in store.changes("sales", token))
        assert {key: row for key, row in seen.items() if row} == dict(r[:2] for r in store.rows("sales"))

    @pytest.mark.parametrize(
        ("where", "keys"),
        [
            ({"country": "DE"}, "a"),
            ({"n": "2"}, "b"),
            ({"n": "2.0"}, "b"),
            ({"n": "1.5"}, "a"),
            ({"paid": "true"}, "a"),
            ({"paid": "1"}, ""),
            ({"zip": "0123"}, "b"),
            ({"zip": "123"}, ""),
            ({"window.start": "2026"}, "c"),
            ({"country": "null"}, "c"),
            ({"country": "FR", "n": "2"}, "b"),
            ({"country": "FR", "n": "3"}, ""),
            ({"nothing": "x"}, ""),
        ],
    )
    def test_filters(self, store: ViewStore, where: dict[str, str], keys: str) -> None:
        rows = [
            Change("a", row(country="DE", n=1.5, paid=True)),
            Change("b", row(country="FR", n=2, paid=False, zip="0123")),
            Change("c", row(country=None, n=3, window={"start": "2026"})),
        ]
        store.commit("q", 0, "sales", rows)
        found = store.read("sales", Query(where=where)).rows
        assert "".join(each.key for each in found) == keys

    def test_order(self, store: ViewStore) -> None:
        store.commit(
            "q", 0, "sales", [Change(key, row(n=n)) for key, n in zip("abcd", (9, 10, 1, 9), strict=True)]
        )
        keys = [
            "".join(found.key for found in store.read("sales", Query(order="n", descending=down)).rows)
            for down in (False, True)
        ]
        assert keys == ["cadb", "badc"]

    @pytest.mark.parametrize("column", ['a"b', "", "a..b", '"'])
    def test_a_name_that_no_column_has_is_refused(self, store: ViewStore, column: str) -> None:
        with pytest.raises(ViewError, match="is no name of a column"):
            store.read("sales", Query(order=column))

    def test_a_token_that_is_not_in_the_feed_is_refused(self, store: ViewStore) -> None:
        store.commit("q", 0, "sales", [Change("DE", row(n=1))])
        for token in (-1, 2):
            with pytest.raises(TokenGone, match="read the rows of the view and go on from the token"):
                store.changes("sales", token)

    def test_starting_over_empties_the_view_and_tells_the_feed(self, store: ViewStore) -> None:
        store.commit("q", 4, "sales", [Change("DE", row(n=1)), Change("FR", row(n=1))])
        store.reset("q", "sales")
        assert (store.epoch("q"), store.count("sales"), store.rows("sales")) == (-1, 0, [])
        assert store.changes("sales", 2) == [StoredChange(3, "DE", None), StoredChange(4, "FR", None)]
        assert store.commit("q", 0, "sales", [Change("DE", row(n=1))])

    def test_the_version_tells_of_commits(self, store: ViewStore, reopen: Open) -> None:
        other = reopen()
        seen = store.version()
        assert store.version() == seen
        store.commit("q", 0, "sales", [Change("DE", row(n=1))])
        assert store.version() != seen
        seen = store.version()
        other.commit("q", 1, "sales", [Change("DE", row(n=2))])
        assert store.version() != seen

    def test_threads_share_a_store(self, store: ViewStore) -> None:
        def write(name: str) -> None:
            for epoch in range(20):
                store.commit(name, epoch, "sales", [Change(f"{name}{epoch}", row(n=epoch))])
                assert store.row("sales", f"{name}{epoch}") is not None

        threads = [threading.Thread(target=write, args=(name,)) for name in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.count("sales") == 60
        assert [change.token for change in store.changes("sales", 0)] == list(range(1, 61))

    def test_a_closed_store_says_so(self, store: ViewStore) -> None:
        store.close()
        with pytest.raises(ViewError, match="closed"):
            store.define(ViewDefinition("other", ("k",)))
        with pytest.raises(ViewError, match="closed"):
            store.row("sales", "DE")

    def test_an_alert_is_taken_tried_and_forgotten(self, store: ViewStore) -> None:
        store.define(ViewDefinition("!fraud", ("id",)))
        store.commit("q", 0, "!fraud", [Change("q/0/0", row(card=1)), Change("q/0/1", row(card=2))])
        assert store.outbox.counts("!fraud") == (2, 0)
        assert store.outbox.take("!fraud") == 2
        assert store.outbox.take("!fraud") == 0
        assert store.outbox.counts("!fraud") == (2, 0)
        first, second = store.outbox.waiting("!fraud")
        assert (first.key, first.tries, first.error) == ("q/0/0", 0, None)
        store.outbox.failed("!fraud", [first.token], error="503", next_at=50.0)
        store.outbox.delivered("!fraud", [second.token])
        [left] = store.outbox.waiting("!fraud")
        assert (left.key, left.tries, left.next_at, left.error) == ("q/0/0", 1, 50.0, "503")

    def test_a_delivery_given_up_is_kept_and_can_be_tried_again(self, store: ViewStore) -> None:
        store.define(ViewDefinition("!fraud", ("id",)))
        store.commit("q", 0, "!fraud", [Change("q/0/0", row(card=1))])
        store.outbox.take("!fraud")
        store.outbox.failed("!fraud", [1], error="gone", next_at=None)
        assert store.outbox.waiting("!fraud") == []
        assert [(dead.key, dead.error) for dead in store.outbox.dead("!fraud")] == [("q/0/0", "gone")]
        assert store.outbox.counts("!fraud") == (0, 1)
        assert store.outbox.redrive("!fraud") == 1
        assert store.outbox.counts("!fraud") == (1, 0)
        assert store.outbox.waiting("!fraud")[0].tries == 0

    def test_rows_of_a_quiet_group_are_one_message_at_its_end(self, reopen: Open) -> None:
        pacing, store = Pacing(("card",), throttle=60.0), reopen()
        store.define(ViewDefinition("!fraud", ("id",)))
        rows = [row(card=1, n=1), row(card=2, n=2), row(card=1, n=3), row(card=1, n=4)]
        store.commit("q", 0, "!fraud", [Change(f"q/0/{n}", each) for n, each in enumerate(rows)])
        assert store.outbox.take("!fraud", pacing=pacing, now=1000.0) == 4
        assert [(each.row, each.held) for each in store.outbox.waiting("!fraud")] == [
            (rows[0], 0), (rows[1], 0),
        ]  # fmt: skip
        assert store.outbox.counts("!fraud") == (3, 0)
        assert store.outbox.quiet_until("!fraud") == 1060.0
        store = reopen()  # what was held back is in the store, not in a process
        assert store.outbox.take("!fraud", pacing=pacing, now=1059.9) == 0
        assert store.outbox.take("!fraud", pacing=pacing, now=1060.0) == 2
        assert [(each.row, each.held) for each in store.outbox.waiting("!fraud")][2:] == [(rows[3], 2)]
        assert len({each.token for each in store.outbox.waiting("!fraud")}) == 3
        assert store.outbox.quiet_until("!fraud") == 1120.0
        assert store.outbox.take("!fraud", pacing=pacing, now=1120.0) == 1
        assert store.outbox.quiet_until("!fraud") is None
        assert store.outbox.counts("!fraud") == (3, 0)

    def test_a_store_paces_as_the_logic_says(self, reopen: Open) -> None:
        pacing, random, store = Pacing(("card",), throttle=10.0), Random(7), reopen()
        store.define(ViewDefinition("!fraud", ("id",)))
        incidents: dict[str, Incident] = {}
        expected: list[tuple[int, int]] = []
        now, token = 0.0, 0
        for epoch in range(30):
            now += random.choice([0.0, 1.0, 4.0, 11.0])
            rows = [row(card=random.randrange(4)) for _ in range(random.randrange(5))]
            entries = [Entry(token + n, f"{epoch}/{n}", each) for n, each in enumerate(rows, 1)]
            token += len(rows)
            store.commit("q", epoch, "!fraud", [Change(entry.key, entry.row) for entry in entries])
            paced = pace(pacing, now, incidents, entries)
            expected += [(each.token, each.held) for each in paced.deliveries]
            incidents |= {name: each for name, each in paced.incidents.items() if each is not None}
            for name in [name for name, each in paced.incidents.items() if each is None]:
                del incidents[name]
            if epoch % 10 == 9:
                store = reopen()
            while store.outbox.take("!fraud", limit=100, pacing=pacing, now=now):
                pass
            held = sum(each.held > 0 for each in incidents.values())
            assert store.outbox.counts("!fraud") == (len(expected) + held, 0)
            until = min((each.until for each in incidents.values()), default=None)
            assert store.outbox.quiet_until("!fraud") == until
        found = store.outbox.waiting("!fraud")
        assert [(each.token, each.held) for each in found] == sorted(expected)

    def test_what_a_group_holds_back_is_sent_where_the_throttle_is_gone(self, store: ViewStore) -> None:
        store.define(ViewDefinition("!fraud", ("id",)))
        store.commit("q", 0, "!fraud", [Change(f"q/0/{n}", row(n=n)) for n in range(3)])
        store.outbox.take("!fraud", pacing=Pacing(throttle=60.0), now=1000.0)
        assert store.outbox.take("!fraud", now=1001.0) == 1
        assert [each.held for each in store.outbox.waiting("!fraud")] == [0, 2]
        assert store.outbox.quiet_until("!fraud") is None

    def test_messages_of_a_digest_wait_for_its_time(self, store: ViewStore) -> None:
        store.define(ViewDefinition("!fraud", ("id",)))
        for epoch, now in enumerate((1201.0, 1799.0, 1800.0)):
            store.commit("q", epoch, "!fraud", [Change(f"q/{epoch}/0", row(n=epoch))])
            store.outbox.take("!fraud", pacing=Pacing(digest=600.0), now=now)
        assert [each.next_at for each in store.outbox.waiting("!fraud")] == [1800.0, 1800.0, 2400.0]
        store.outbox.failed("!fraud", [1, 2], error="away", next_at=1900.0)
        assert [(each.next_at, each.tries) for each in store.outbox.waiting("!fraud")] == [
            (1900.0, 1), (1900.0, 1), (2400.0, 0),
        ]  # fmt: skip

    def test_an_alerts_rows_are_cut_only_after_they_were_taken(self, reopen: Open) -> None:
        store = reopen()
        store.define(ViewDefinition("!fraud", ("id",)))
        store.commit("q", 0, "!fraud", [Change(f"{n:04}", row(n=n)) for n in range(3000)])
        assert store.count("!fraud") == 3000
        taken = 0
        while more := store.outbox.take("!fraud", limit=700):
            taken += more
        assert taken == len(store.outbox.waiting("!fraud", limit=5000)) == 3000
        assert store.count("!fraud") == len(store.rows("!fraud")) == 1000
