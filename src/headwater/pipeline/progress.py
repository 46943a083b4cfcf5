"""What a query says of itself: its last micro-batch, its lag and its watermark, as one JSON document.

    {"name": "shop.revenue", "kind": "view", "state": "running", "rows_per_second": 812.0, "input_rows": 40100,
     "batch_ms": 130, "lag": {"orders": {"0": 0, "1": 12}}, "watermark": "2026-01-01T10:00:00.000Z",
     "state_bytes": 92000, "epoch": 77, "error": null, "dropped_matches": 0, "refused_searches": 0,
     "holding": {"topic": "orders", "partition": 1, "high": "2026-…Z", "since": 1767225600000}, "at": 1767225660000}

Spark's progress comes with every batch, ten a second and query; it is looked at once a second, so that
whatever a query does, watching it costs the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

__all__ = ["QueryProgress", "iso", "total_lag"]

Lag = dict[str, dict[str, int]]

_COUNTED = {
    "headwater_match": ("dropped", "dropped_matches"),
    "headwater_searches": ("refused", "refused_searches"),
}
"""What operators count: the name that begins that of their metric, the figure in it, and its name in a status."""


def iso(milliseconds: int) -> str:
    """Return a moment as text.

    >>> iso(0)
    '1970-01-01T00:00:00.000Z'
    """
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC).replace(tzinfo=None)
    return moment.isoformat(timespec="milliseconds") + "Z"


def total_lag(lag: Mapping[str, Mapping[str, int]]) -> int:
    """Return how many records a query has yet to read, over all its topics."""
    return sum(behind for partitions in lag.values() for behind in partitions.values())


@dataclass
class _Source:
    """How far one topic was read: the offset JSON of our source."""

    offsets: dict[str, int] = field(default_factory=dict)
    highs: dict[str, int] = field(default_factory=dict)
    watermark: int | None = None


class QueryProgress:
    """Folds one query's progress into its status; `now` is always given."""

    def __init__(self, name: str, kind: str, topics: tuple[str, ...], lateness: Mapping[str, int]) -> None:
        self.name = name
        self.kind = kind
        self.topics = topics
        """In the order of Spark's plan; a topic that is read twice is there twice."""
        self._lateness = lateness
        self._sources: dict[str, _Source] = {topic: _Source() for topic in topics}
        self._raised: dict[tuple[str, str], int] = {}
        self._figures: dict[str, Any] = {}
        self._input_rows = 0
        self._counts = {name: 0 for _, name in _COUNTED.values()}
        self._seen = ""

    def has_seen(self, progress: Mapping[str, Any]) -> bool:
        """Tell whether this progress, or a later one, was taken before."""
        return str(progress["timestamp"]) <= self._seen  # ISO 8601, always in UTC

    def take(self, progress: Mapping[str, Any], now: int) -> None:
        """Fold in one progress of Spark's, as its JSON document."""
        if self.has_seen(progress):
            return
        self._seen = str(progress["timestamp"])
        rows = sum(map(_records, progress.get("sources") or []))
        self._input_rows += rows
        operators = progress.get("stateOperators") or []
        self._figures = {
            "rows_per_second": round(_positive(progress.get("processedRowsPerSecond")), 1) if rows else 0.0,
            "input_rows_per_second": round(_positive(progress.get("inputRowsPerSecond")), 1) if rows else 0.0,
            "batch_ms": (progress.get("durationMs") or {}).get("triggerExecution", 0),
            "epoch": progress.get("batchId"),
            "state_bytes": sum(each.get("memoryUsedBytes", 0) for each in operators),
        }
        for name, figures in (progress.get("observedMetrics") or {}).items():
            counted = _COUNTED.get(name.partition(".")[0])
            if counted is not None:
                self._counts[counted[1]] += figures[counted[0]] or 0
        for topic, source in zip(self.topics, progress.get("sources") or [], strict=False):
            self._take_source(topic, source, now)

    def _take_source(self, topic: str, source: Mapping[str, Any], now: int) -> None:
        document = _document(source.get("endOffset"))
        offsets = document.get("offsets", document.get(topic))  # ours, or that of Spark's own connector
        if offsets is None:
            return
        before = self._sources[topic]
        found = _Source(
            offsets=dict(offsets),
            highs=dict(document.get("highs") or {}),
            watermark=document.get("watermark"),
        )
        for partition, high in found.highs.items():
            if before.highs.get(partition) != high:
                self._raised[topic, partition] = now
        self._sources[topic] = found

    def lag(self, ends: Mapping[str, Mapping[int, int]]) -> Lag:
        """Return how many records each partition holds beyond what was read."""
        found: Lag = {}
        for topic in dict.fromkeys(self.topics):
            offsets = self._sources[topic].offsets
            found[topic] = {
                str(partition): max(0, end - offsets.get(str(partition), 0))
                for partition, end in sorted(ends.get(topic, {}).items())
            }
        return found

    def holding(self) -> dict[str, Any] | None:
        """Return the partition that holds the watermark back, and since when it has."""
        timed = {topic: each for topic, each in self._sources.items() if each.watermark is not None}
        if not timed:
            return None
        # A partition below its topic's watermark has been idle for so long that it was left behind; a topic
        # with none above it is quiet as a whole, and has taken over the watermark of another.
        for topic in sorted(timed, key=lambda name: timed[name].watermark or 0):
            least = (timed[topic].watermark or 0) + self._lateness.get(topic, 0)
            highs = {partition: high for partition, high in timed[topic].highs.items() if high >= least}
            if highs:
                break
        else:
            return None
        partition = min(highs, key=lambda name: highs[name])
        since = self._raised.get((topic, partition))
        return {"topic": topic, "partition": int(partition), "high": iso(highs[partition]), "since": since}

    def watermark(self) -> int | None:
        """Return the moment before which nothing more is waited for: the least of the topics'."""
        marks = [each.watermark for each in self._sources.values() if each.watermark is not None]
        return min(marks) if marks else None

    def status(
        self, state: str, now: int, ends: Mapping[str, Mapping[int, int]], error: str | None = None
    ) -> dict[str, Any]:
        """Return the status."""
        watermark = self.watermark()
        document = {
            "name": self.name,
            "kind": self.kind,
            "state": state,
            "rows_per_second": 0.0,
            "input_rows": self._input_rows,
            "batch_ms": 0,
            "lag": self.lag(ends),
            "watermark": None if watermark is None else iso(watermark),
            "state_bytes": 0,
            "epoch": None,
            "error": error,
            "holding": self.holding(),
            "at": now,
        }
        return document | self._counts | self._figures


def _records(source: Mapping[str, Any]) -> int:
    """Return how many records a source brought: without any, its one row only tells that time went on."""
    start, end = _document(source.get("startOffset")), _document(source.get("endOffset"))
    moved = "offsets" not in end or start.get("offsets") != end["offsets"]
    return int(_positive(source.get("numInputRows"))) if moved else 0


def _positive(number: Any) -> float:
    """Return a figure of Spark's, which is NaN or missing where it divided by nothing."""
    return number if isinstance(number, int | float) and number > 0 else 0


def _document(offset: Any) -> dict[str, Any]:
    """Return an offset as a document: Spark's JSON holds it as one, or as text."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return {}
    return offset if isinstance(offset, dict) else {}
