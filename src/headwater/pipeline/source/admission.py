"""How much of a backlog one batch takes."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

__all__ = ["ASSUMED_BYTES", "admit"]

ASSUMED_BYTES = 1024
"""The size of a record before any has been read."""


def admit(
    read: Mapping[int, int],
    ends: Mapping[int, int],
    *,
    max_rows: int | None = None,
    max_bytes: int | None = None,
    row_bytes: Mapping[int, float] | None = None,
) -> dict[int, int]:
    """Return where a batch ends, given where it starts and where the partitions end.

    Each partition gives the same share of its backlog, so that event times stay side by side; at least one
    record is taken while there is one. Bytes go by the average size of the records read so far.

    >>> admit({0: 0, 1: 0}, {0: 300, 1: 100}, max_rows=100)
    {0: 75, 1: 25}
    """
    backlog = {partition: max(end - read.get(partition, 0), 0) for partition, end in ends.items()}
    rows = sum(backlog.values())
    share = Fraction(1)
    if max_rows is not None and rows > max_rows:
        share = Fraction(max_rows, rows)
    if max_bytes is not None:
        sizes = row_bytes or {}
        total = sum(
            count * Fraction(sizes.get(partition, ASSUMED_BYTES)) for partition, count in backlog.items()
        )
        if total > max_bytes:
            share = min(share, Fraction(max_bytes) / total)
    if share == 1:
        return {partition: max(end, read.get(partition, 0)) for partition, end in ends.items()}
    taken = {partition: int(count * share) for partition, count in backlog.items()}
    left = max(int(rows * share), 1) - sum(taken.values())
    # What rounding left over goes to those with the longest backlog.
    for partition in sorted(backlog, key=lambda partition: (-backlog[partition], partition)):
        if left <= 0:
            break
        if taken[partition] < backlog[partition]:
            taken[partition] += 1
            left -= 1
    return {partition: read.get(partition, 0) + count for partition, count in taken.items()}
