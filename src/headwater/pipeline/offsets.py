"""How far a query has read each partition of its topics, from Spark's progress and from its checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["Offsets", "committed", "merged", "progress_offsets", "reached"]

Offsets = Mapping[str, Mapping[int, int]]
"""The next offset to read, by topic and partition."""


def progress_offsets(progress: Mapping[str, Any], topics: Sequence[str]) -> Offsets:
    """Return what a progress of Spark's says was read, given the topics in the order of the plan."""
    ends = [source.get("endOffset") for source in progress.get("sources") or []]
    return _by_topic(ends, topics)


def committed(checkpoint: Path, topics: Sequence[str]) -> Offsets:
    """Return what the last epoch in a checkpoint that was committed had read."""
    epochs = [int(file.name) for file in (checkpoint / "commits").glob("*") if file.name.isdigit()]
    if not epochs:
        return {}
    # A version, a document about the batch, and one line for each source.
    lines = (checkpoint / "offsets" / str(max(epochs))).read_text().splitlines()[2:]
    return _by_topic(lines, topics)


def merged(one: Offsets, other: Offsets) -> Offsets:
    """Return the farther of two positions in each partition of the topics of the first.

    >>> merged({"a": {0: 5, 1: 5}}, {"a": {0: 7, 1: 2}, "b": {0: 1}})
    {'a': {0: 7, 1: 5}}
    """
    return {
        topic: {
            partition: max(offset, other.get(topic, {}).get(partition, 0))
            for partition, offset in partitions.items()
        }
        for topic, partitions in one.items()
    }


def reached(done: Offsets, target: Offsets) -> bool:
    """Tell whether a position is at another or behind it, in the topics that it reads.

    >>> reached({"a": {0: 5}}, {"a": {0: 5}, "b": {0: 9}}), reached({"a": {0: 4}}, {"a": {0: 5}})
    (True, False)
    """
    return all(
        done[topic].get(partition, 0) >= offset
        for topic, partitions in target.items()
        if topic in done
        for partition, offset in partitions.items()
    )


def _by_topic(ends: Sequence[Any], topics: Sequence[str]) -> Offsets:
    found: dict[str, dict[int, int]] = {}
    for topic, end in zip(topics, ends, strict=False):
        document = json.loads(end) if isinstance(end, str) else end
        if not isinstance(document, dict):
            continue
        offsets = document.get("offsets", document.get(topic)) or {}  # ours, or that of Spark's own connector
        before = found.setdefault(topic, {})
        for partition, offset in offsets.items():
            # A topic that is read twice is as far as the slower of the two.
            before[int(partition)] = min(offset, before.get(int(partition), offset))
    return found
