"""Rows in pages against a dictionary."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from effort import examples
from headwater.pipeline.keyed.logic import pack, unpack
from headwater.pipeline.table_joins import MemoryPages, PageMap
from headwater.pipeline.table_joins.pages import INLINE, PER_PAGE


class Maps(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.pages = MemoryPages()
        self.map = PageMap(None, self.pages, 1, stride=3, offset=1)
        self.reference: dict[bytes, Any] = {}

    @rule(start=st.integers(0, 500), count=st.integers(1, 300), value=st.integers(0, 99))
    def put(self, start: int, count: int, value: int) -> None:
        for n in range(start, start + count):
            self.map.put(b"%d" % n, [value])
            self.reference[b"%d" % n] = [value]

    @rule(start=st.integers(0, 800), count=st.integers(1, 800))
    def remove(self, start: int, count: int) -> None:
        for n in range(start, start + count):
            self.map.remove(b"%d" % n)
            self.reference.pop(b"%d" % n, None)

    @rule()
    def reopen(self) -> None:
        header = unpack(pack(self.map.flush()))
        self.map = PageMap(header, self.pages, 1, stride=3, offset=1)
        assert all(number % 3 == 1 for number in self.pages.pages)
        rows = [len(unpack(page)) for page in self.pages.pages.values()]
        assert sum(rows) + len(header[2] or {}) == len(self.reference)
        assert all(rows), "a page without rows is kept"
        assert bool(rows) == (header[2] is None)
        assert len(header[2] or {}) <= INLINE
        assert max(rows, default=0) <= 4 * PER_PAGE

    @invariant()
    def same(self) -> None:
        assert self.map.count == len(self.reference)
        assert dict(self.map.items()) == self.reference
        assert all(self.map.get(b"%d" % n) == self.reference.get(b"%d" % n) for n in range(0, 900, 97))


TestMaps = Maps.TestCase
TestMaps.settings = settings(max_examples=examples(30), stateful_step_count=15)


def test_a_map_that_grows_by_one_row_at_a_time_writes_what_it_split() -> None:
    pages = MemoryPages()
    header = None
    for n in range(1000):
        opened = PageMap(header, pages, 1)
        opened.put(b"%d" % n, [n])
        header = opened.flush()
    rows = [row for page in pages.pages.values() for row in unpack(page).values()]
    assert sorted(rows) == [[n] for n in range(1000)]
    assert len(pages.pages) == 1000 // PER_PAGE + 1


def test_pages_without_rows_are_deleted() -> None:
    pages = MemoryPages()
    opened = PageMap(None, pages, 1)
    for n in range(5000):
        opened.put(b"%d" % n, [n])
    opened = PageMap(opened.flush(), pages, 1)
    assert len(pages.pages) > 70
    for n in range(4980):
        opened.remove(b"%d" % n)
    opened.flush()
    assert len(pages.pages) <= 20
