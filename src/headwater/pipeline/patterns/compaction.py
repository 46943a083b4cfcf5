"""Which rows partial matches still need, where a pattern has gaps.

Between the rows that a long wait has taken lie others that were taken in vain. Those on no way that is still open
can go, if following the remaining rows leads to the very same ways: that is tried out, not concluded.
"""

from __future__ import annotations

from headwater.pipeline.patterns.table import Table, unwound
from headwater.pipeline.patterns.values import Row

__all__ = ["needed_rows"]


def needed_rows(table: Table, rows: list[tuple[int, Row]], starts: list[tuple[int, int]]) -> set[int]:
    """Return the numbers of the rows to keep for some starts, each with the last row that it has seen."""
    before = [_ways(table, rows, first, last) for first, last in starts]
    needed = {number for _, paths in before for path in paths for number, _ in path}
    fewer = [each for each in rows if each[0] in needed]
    if [_ways(table, fewer, first, last) for first, last in starts] != before:
        return {number for number, _ in rows}
    return needed


def _ways(
    table: Table, rows: list[tuple[int, Row]], first: int, last: int
) -> tuple[list[tuple[int, int]], list[list[tuple[int, int]]]]:
    threads, best = table.replay([each for each in rows if first <= each[0] <= last])
    return list(threads), [unwound(node) for node in [*threads.values(), best]]
