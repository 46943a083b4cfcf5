"""The third stage: one change for each key of the result and batch.

A row of the left that goes from one department to another is deleted by the join key that it left and
upserted by the one that it came to, in the same batch and in no order. A key of the result lives in one join key at a
time, so there is at most one upsert, and it says all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headwater.pipeline.keyed.logic import Logic, Step

__all__ = ["Net"]

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Net(Logic):
    """Keyed by the result's key, without state: rows are those of `TableJoin`, and so are results."""

    def step(self, key: Row, state: bytes | None, rows: list[Row], watermark: int) -> Step:
        """Let the upsert stand for the delete."""
        upserts = [row for row in rows if not row[-1]]
        return Step(None, upserts[-1:] or rows[:1])
