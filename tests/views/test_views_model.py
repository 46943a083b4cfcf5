"""A store against a dictionary: whatever is committed in whatever order, both hold the same."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headwater.views import Change, Query, TokenGone, ViewDefinition, ViewStore, open_store

KEEP = 12

keys = st.sampled_from(["a", "b", "c", "a,b", "é", "%", ""])
rows = st.none() | st.sampled_from(['{"n":1}', '{"n":2}', '{"n":"x"}'])
changes = st.lists(st.builds(Change, keys, rows), max_size=6)
views = st.sampled_from(["one", "two"])


class StoreMachine(RuleBasedStateMachine):
    """Commits, replays, resets, reopenings and followers."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.store = self.open()
        for view in ("one", "two"):
            self.store.define(ViewDefinition(view, ("k",)))
        self.rows: dict[str, dict[str, str]] = {"one": {}, "two": {}}
        self.epochs = {"one": -1, "two": -1}
        self.copy: dict[str, dict[str, str]] = {"one": {}, "two": {}}
        self.position = {"one": 0, "two": 0}

    def open(self) -> ViewStore:
        return open_store(f"sqlite:///{self.directory}/views.db", keep_changes=KEEP)

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.directory)

    @rule(view=views, given=changes)
    def commit(self, view: str, given: list[Change]) -> None:
        self.epochs[view] += 1
        before = dict(self.rows[view])
        for key, row in given:
            if row is None:
                self.rows[view].pop(key, None)
            else:
                self.rows[view][key] = row
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

    @invariant()
    def both_hold_the_same(self) -> None:
        for view in ("one", "two"):
            found = self.store.read(view, Query(limit=100)).rows
            assert {row.key: row.row for row in found} == self.rows[view]
            assert [row.key for row in found] == sorted(self.rows[view], key=str.encode)
            assert self.store.count(view) == len(self.rows[view])
            assert self.store.epoch(view) == self.epochs[view]


TestStore = StoreMachine.TestCase
TestStore.settings = settings(max_examples=20, stateful_step_count=20, deadline=None)
