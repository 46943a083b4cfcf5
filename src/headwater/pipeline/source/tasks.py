"""What the driver asks of a task, and how a batch is cut into tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition

from headwater.pipeline.source.offsets import SourceOffset

__all__ = ["Range", "ReportTo", "Task", "cut", "plan"]

SMALL_ROWS = 20_000
"""A task costs some 10 ms whatever it reads: batches of fewer rows are not spread over more tasks."""


class Range(NamedTuple):
    """Offsets of one partition, `end` not included."""

    partition: int
    start: int
    end: int


class ReportTo(NamedTuple):
    """Where a task tells what it has seen, and the word by which it is known there."""

    host: str
    port: int
    token: str


@dataclass(repr=False)
class Task(InputPartition):
    """Some ranges, read one after the other."""

    ranges: tuple[Range, ...]
    watermark: int | None = None
    marker: bool = False
    report: ReportTo | None = None

    def __repr__(self) -> str:
        return f"Task({', '.join(f'{r.partition}: {r.start}-{r.end}' for r in self.ranges)})"


def ranges_between(start: SourceOffset, end: SourceOffset) -> list[Range]:
    """Return what lies between two offsets; a partition that is new starts at 0, as does a new topic."""
    before: Mapping[int, int] = start.offsets if end.continues(start) else {}
    found = [Range(partition, before.get(partition, 0), stop) for partition, stop in end.offsets.items()]
    return [each for each in found if each.end > each.start]


def plan(start: SourceOffset, end: SourceOffset, report: ReportTo | None) -> list[Task]:
    """Return the tasks of a batch; where the watermark is to be told, one of them brings the marker."""
    ranges = sorted(ranges_between(start, end), key=lambda each: each.start - each.end)
    told = end.tells_time(start)
    rows = sum(each.end - each.start for each in ranges)
    count = min(len(ranges), 1 + rows // SMALL_ROWS)
    groups: list[list[Range]] = [[] for _ in range(count)]
    sizes = [0] * count
    for each in ranges:  # the longest first, each to the group that has least
        smallest = sizes.index(min(sizes))
        groups[smallest].append(each)
        sizes[smallest] += each.end - each.start
    if not groups and told:
        groups = [[]]
    return [
        Task(tuple(group), end.watermark, marker=told and number == 0, report=report)
        for number, group in enumerate(groups)
    ]


def cut(start: SourceOffset, end: SourceOffset, rows: int) -> list[Task]:
    """Return tasks of no more than so many offsets each: a partition is read by several at once."""
    return [
        Task((Range(each.partition, at, min(at + rows, each.end)),))
        for each in ranges_between(start, end)
        for at in range(each.start, each.end, rows)
    ]
