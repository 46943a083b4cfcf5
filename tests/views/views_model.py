"""A store against a dictionary: whatever is committed in whatever order, both hold the same.

Each backend makes a machine of its own, which says where a new store is.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headwater.testing.clock import ManualClock
from headwater.views import Change, Query, TokenGone, Version, ViewDefinition, ViewStore, open_store

KEEP = 12
TTL = 1000
START = 1_700_000_000_000

keys = st.sampled_from(["a", "b", "c", "a,b", "é", "%", "", "\x1d", "\x1f\t\n\\"])
rows = st.none() | st.sampled_from(['{"n":1}', '{"n":2}', '{"n":"x"}', '{"t":"\\\\N\\n", "n": -1}'])
changes = st.lists(st.builds(Change, keys, rows), max_size=6)
VIEWS = {
    "one": ViewDefinition("one", ("k",), indexes=("n",), history_ms=10**9),
    "two": ViewDefinition("two", ("k",), ttl_ms=TTL),
}
views = st.sampled_from(list(VIEWS))


class StoreMachine(RuleBasedStateMachine):
    """Commits, replays, resets, time that passes, shadows, reopenings and followers."""

    url: str

    def __init__(self) -> None:
        super().__init__()
        self.url = self.new_store()
        self.clock = ManualClock(START)
        self.store = self.open()
        for view in VIEWS.values():
            self.store.define(view)
        self.rows: dict[str, dict[str, str]] = {name: {} for name in VIEWS}
        self.written: dict[str, dict[str, int]] = {name: {} for name in VIEWS}
        self.states: list[tuple[int, dict[str, str]]] = [(START, {})]
        self.shadow: dict[str, str] | None = None
        self.epochs = dict.fromkeys((*VIEWS, "shadow"), -1)
        self.copy: dict[str, dict[str, str]] = {name: {} for name in VIEWS}
        self.position = dict.fromkeys(VIEWS, 0)

    def new_store(self) -> str:
        """Return where a store is that nobody has used; each backend has its own way."""
        return self.url

    def open(self) -> ViewStore:
        return open_store(self.url, keep_changes=KEEP, clock=self.clock)

    def teardown(self) -> None:
        self.store.close()

    def expired(self, view: str) -> None:
        if view == "two":
            for key, at in list(self.written[view].items()):
                if at <= self.clock.wall_ms() - TTL:
                    del self.rows[view][key], self.written[view][key]

    def note(self, view: str) -> None:
        if view == "one":
            self.states.append((self.clock.wall_ms(), dict(self.rows["one"])))

    @rule(view=views, given=changes)
    def commit(self, view: str, given: list[Change]) -> None:
        self.epochs[view] += 1
        before = dict(self.rows[view])
        for key, row in dict(given).items():
            if row is None:
                self.rows[view].pop(key, None)
                self.written[view].pop(key, None)
            else:
                self.rows[view][key] = row
                self.written[view][key] = self.clock.wall_ms()
        self.expired(view)
        self.note(view)
        token = self.store.token(view)
        assert self.store.commit(view, self.epochs[view], view, given)
        differing = {
            key
            for key in before.keys() | self.rows[view].keys()
            if before.get(key) != self.rows[view].get(key)
        }
        assert self.store.token(view) == token + len(differing)

    @rule(view=views, given=changes, back=st.integers(0, 2))
    def replay(self, view: str, given: list[Change], back: int) -> None:
        if self.epochs[view] >= 0:
            assert not self.store.commit(view, max(self.epochs[view] - back, 0), view, given)

    @rule(view=views)
    def reset(self, view: str) -> None:
        self.store.reset(view, view)
        self.epochs[view] = -1
        self.rows[view].clear()
        self.written[view].clear()
        self.note(view)

    @rule(ms=st.integers(1, 700))
    def time_passes(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule()
    def expire(self) -> None:
        before = len(self.rows["two"])
        self.expired("two")
        assert self.store.expire() == before - len(self.rows["two"])

    @rule()
    def begin_shadow(self) -> None:
        self.store.shadow("one", "shadow")
        self.shadow, self.epochs["shadow"] = {}, -1

    @rule(given=changes)
    def commit_shadow(self, given: list[Change]) -> None:
        if self.shadow is None:
            return
        self.epochs["shadow"] += 1
        assert self.store.commit("shadow", self.epochs["shadow"], "~one", given)
        self.shadow = {key: row for key, row in (self.shadow | dict(given)).items() if row is not None}

    @rule()
    def swap(self) -> None:
        if self.shadow is None:
            return
        before = self.rows["one"]
        differ = sum(before.get(key) != self.shadow.get(key) for key in before.keys() | self.shadow.keys())
        assert self.store.swap("one", query="one", shadow_query="shadow") == differ
        self.rows["one"], self.shadow = self.shadow, None
        self.epochs["one"], self.epochs["shadow"] = self.epochs["shadow"], -1
        self.note("one")

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = self.open()

    @rule(view=views, limit=st.integers(1, 4))
    def follow(self, view: str, limit: int) -> None:
        try:
            found = self.store.changes(view, self.position[view], limit)
        except TokenGone:
            assert self.store.token(view) - self.position[view] > KEEP
            snapshot = self.store.read(view)
            self.copy[view] = {row.key: row.row for row in snapshot.rows}
            self.position[view] = snapshot.token
            return
        for change in found:
            assert change.token == self.position[view] + 1
            self.position[view] = change.token
            if change.row is None:
                del self.copy[view][change.key]
            else:
                assert self.copy[view].get(change.key) != change.row
                self.copy[view][change.key] = change.row
        if self.position[view] == self.store.token(view):
            assert self.copy[view] == self.rows[view]

    @rule(back=st.integers(0, 1500))
    def look_back(self, back: int) -> None:
        at = max(START, self.clock.wall_ms() - back)
        was = [state for moment, state in self.states if moment <= at][-1]
        found = self.store.read("one", Query(at=at)).rows
        assert {row.key: row.row for row in found} == was

    @rule(key=keys)
    def look_at_a_key(self, key: str) -> None:
        lasting: dict[int, str | None] = {moment: state.get(key) for moment, state in self.states}
        wanted: list[Version] = []
        for moment, row in lasting.items():
            if wanted and wanted[0].until is None and wanted[0].row != row:
                wanted[0] = wanted[0]._replace(until=moment)
            if row is not None and (not wanted or wanted[0].until is not None):
                wanted.insert(0, Version(moment, None, row))
        found = self.store.history("one", key)
        assert [(version.row, version.until) for version in found] == [(v.row, v.until) for v in wanted]

    @rule(text=st.sampled_from(["1", "2", "x", "-1", "null"]))
    def filter(self, text: str) -> None:
        wanted = {key for key, row in self.rows["one"].items() if _n(row) == text}
        found = self.store.read("one", Query(where={"n": text})).rows
        assert [row.key for row in found] == sorted(wanted, key=str.encode)

    @invariant()
    def both_hold_the_same(self) -> None:
        for view in VIEWS:
            found = self.store.read(view, Query(limit=100)).rows
            assert {row.key: row.row for row in found} == self.rows[view]
            assert [row.key for row in found] == sorted(self.rows[view], key=str.encode)
            assert self.store.count(view) == len(self.rows[view])
            assert self.store.epoch(view) == self.epochs[view]


def _n(row: str) -> str:
    return row.split('"n":')[1].strip(' "}')
