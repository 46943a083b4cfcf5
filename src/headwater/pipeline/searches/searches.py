"""The operator of stored searches: queries and events in, matches and refusals out.

Every event has to meet every query, so events are spread over shards, and a query goes to all of them. The state of
a shard is a fingerprint of its queries, and their texts lie in pages beside it: a change of one query writes one
page. The index over them is made from the pages once, and kept by the worker under the fingerprint that it belongs
to. Shards that had the same changes have the same fingerprint, so those of one worker share one index, and a batch
without changes reads nothing but the fingerprint.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final
from zlib import crc32

from headwater.pipeline.keyed.logic import PagedLogic, Pages, Step, pack, unpack
from headwater.pipeline.searches.fields import Kind
from headwater.pipeline.searches.index import SearchIndex
from headwater.pipeline.searches.query import QueryError, parse

__all__ = ["EVENT", "QUERY", "Searches", "refusal"]

EVENT: Final = 0
QUERY: Final = 1
PAGES: Final = 1024
"""A query's text lies in one of so many pages, by its name."""
_HEAD: Final = 5
_REMEMBERED: Final = 8

Row = tuple[Any, ...]


@dataclass
class _Stored:
    """The queries of one fingerprint: their index, and the text of each, also of those that match nothing."""

    index: SearchIndex
    texts: dict[str, str] = field(default_factory=dict)


_stored: OrderedDict[tuple[Searches, bytes], _Stored] = OrderedDict()
"""By logic and fingerprint: a memory of what can be made again."""


@dataclass(frozen=True)
class Searches(PagedLogic):
    """Keyed by the number of a shard, from 0.

    Rows are (tag, first, second, name, text, *columns of events):

        (EVENT, partition, offset, None, None, *values)
        (QUERY, version, None, name of the query, its JSON or None where it was removed, …)

    An event meets the queries that have come up to and with its batch. Results are (name, JSON of the query, *columns,
    reason): matches in the order of the log, with no reason, and before them queries that cannot be read, with the
    reason and without an event. Those are reported by shard 0 alone. A query whose new version cannot be read is no
    longer in force, since its topic says that it is not what it was.
    """

    columns: tuple[str, ...]
    kinds: tuple[tuple[str, Kind], ...]
    """The columns that queries may ask about; times are in µs, dates in days, decimals as digits."""

    def step(self, key: Row, state: bytes | None, rows: list[Row], watermark: int, pages: Pages) -> Step:
        """Change the queries, then match the events."""
        changes: dict[str, Row] = {}
        for row in rows:
            if row[0] == QUERY and (row[3] not in changes or row[1] >= changes[row[3]][1]):
                changes[row[3]] = row
        events = sorted((row for row in rows if row[0] == EVENT), key=lambda row: row[1:3])
        if not changes and (not events or state is None):
            return Step(state, [])
        texts = {name: row[4] for name, row in sorted(changes.items())}
        after = _fingerprint(state, texts)
        stored = self._changed(state, after, texts, pages)
        out = []
        if key[0] == 0:
            out = [
                (name, text, *[None] * len(self.columns), reason)
                for name, text in texts.items()
                if text is not None and (reason := refusal(text, self.kinds)) is not None
            ]
        if changes:
            _write(pages, texts, stored.texts)
            state = after if stored.texts else None
        names = self.columns
        match, queries = stored.index.match, stored.texts
        for row in events:
            values = row[_HEAD : _HEAD + len(names)]
            found = match(dict(zip(names, values, strict=True)))
            out += [(name, queries[name], *values, None) for name in found]
        return Step(state, out)

    def _changed(
        self, before: bytes | None, after: bytes, changes: Mapping[str, str | None], pages: Pages
    ) -> _Stored:
        """Return the queries after some changes, which another shard of this worker may have made already."""
        stored = _stored.get((self, after))
        if stored is None:
            fields = dict(self.kinds)
            stored = None if before is None else _stored.pop((self, before), None)
            if stored is None:
                stored = _Stored(SearchIndex(fields))
                if before is not None:
                    for name, text in _read(pages):  # one that asks for a field that is gone matches nothing
                        _put(stored, name, text, fields)
                        stored.texts[name] = text
            for name, changed in changes.items():
                _put(stored, name, changed, fields)
        _stored[self, after] = stored
        _stored.move_to_end((self, after))
        while len(_stored) > _REMEMBERED:
            _stored.popitem(last=False)
        return stored


def refusal(text: str, kinds: tuple[tuple[str, Kind], ...]) -> str | None:
    """Return why a query cannot be read, or None if it can."""
    try:
        parse(text, dict(kinds))
    except QueryError as error:
        return str(error)
    return None


def _put(stored: _Stored, name: str, text: str | None, fields: dict[str, Kind]) -> None:
    """Put a query into force, or out of it where it was removed or cannot be read."""
    try:
        if text is not None:
            stored.index.put(name, parse(text, fields))
            stored.texts[name] = text
            return
    except QueryError:
        pass
    stored.index.remove(name)
    stored.texts.pop(name, None)


def _fingerprint(before: bytes | None, changes: Mapping[str, str | None]) -> bytes:
    if not changes:
        return before or b""
    return blake2b(pack([before, list(changes.items())]), digest_size=16).digest()


def _page(name: str) -> int:
    return crc32(name.encode()) % PAGES


def _read(pages: Pages) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for number in range(PAGES):
        page = pages.read(number)
        if page is not None:
            found += unpack(page).items()
    return found


def _write(pages: Pages, changes: Mapping[str, str | None], queries: Mapping[str, str]) -> None:
    """Write the pages of the queries that changed."""
    touched: dict[int, list[str]] = {}
    for name in changes:
        touched.setdefault(_page(name), []).append(name)
    for number, names in touched.items():
        before = pages.read(number)
        page: dict[str, str] = {} if before is None else unpack(before)
        for name in names:
            if name in queries:
                page[name] = queries[name]
            else:
                page.pop(name, None)
        if before is not None or page:
            pages.write(number, pack(page) if page else None)
