"""The operator of stored searches: queries and events in, matches and dead letters out.

Every event has to meet every query, so events are spread over shards, and a query goes to all of them. The state of
a shard is the text of its queries; the index over them is made from that, and kept by the worker for as long as the
state is the one that it was made from.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

from headwater.pipeline.keyed.logic import Logic, Step, pack, unpack
from headwater.pipeline.searches.fields import Kind
from headwater.pipeline.searches.index import SearchIndex
from headwater.pipeline.searches.query import QueryError, parse

__all__ = ["EVENT", "QUERY", "Searches"]

EVENT: Final = 0
QUERY: Final = 1
_HEAD: Final = 5
_INDEXES: Final = 64

Row = tuple[Any, ...]
_indexes: OrderedDict[tuple[Searches, bytes], SearchIndex] = OrderedDict()
"""Indexes by the state that they were made from: a memory of what can be made again."""


@dataclass(frozen=True)
class Searches(Logic):
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
    """The columns that queries may ask about; times are in µs."""

    def step(self, key: Row, state: bytes | None, rows: list[Row], watermark: int) -> Step:
        """Change the queries, then match the events."""
        changes: dict[str, Row] = {}
        for row in rows:
            if row[0] == QUERY and (row[3] not in changes or row[1] >= changes[row[3]][1]):
                changes[row[3]] = row
        events = sorted((row for row in rows if row[0] == EVENT), key=lambda row: row[1:3])
        queries: dict[str, str] = {} if state is None else unpack(state)
        if not changes and (not events or not queries):
            return Step(state, [])
        index = self._index(state, queries)
        out = []
        for name, row in changes.items():
            reason = _change(index, queries, name, row[4], dict(self.kinds))
            if reason is not None and key[0] == 0:
                out.append((name, row[4], *[None] * len(self.columns), reason))
        if changes:
            state = pack(queries) if queries else None
        for row in events:
            values = row[_HEAD : _HEAD + len(self.columns)]
            event = dict(zip(self.columns, values, strict=True))
            out += [(name, queries[name], *values, None) for name in index.match(event)]
        if state is not None:
            self._remember(state, index)
        return Step(state, out)

    def _index(self, state: bytes | None, queries: dict[str, str]) -> SearchIndex:
        """Take the index over a state's queries: whoever has it may change it."""
        index = None if state is None else _indexes.pop((self, state), None)
        if index is None:
            fields = dict(self.kinds)
            index = SearchIndex(fields)
            for name, text in queries.items():  # one that asks for a field that is gone matches nothing
                _change(index, {}, name, text, fields)
        return index

    def _remember(self, state: bytes, index: SearchIndex) -> None:
        _indexes[self, state] = index
        while len(_indexes) > _INDEXES:
            _indexes.popitem(last=False)


def _change(
    index: SearchIndex, queries: dict[str, str], name: str, text: str | None, fields: dict[str, Kind]
) -> str | None:
    """Put or remove a query; return why it cannot be read."""
    reason = None
    if text is not None:
        try:
            index.put(name, parse(text, fields))
        except QueryError as error:
            reason = str(error)
        else:
            queries[name] = text
            return None
    index.remove(name)
    queries.pop(name, None)
    return reason
