"""The places of a pipeline at which a test can make its process die: see `headwater.core.boundaries`."""

from __future__ import annotations

from headwater.core.boundaries import boundary

__all__ = ["BOUNDARIES", "boundary"]

BOUNDARIES = (
    "source.after_plan",
    "source.after_read",
    "topic.in_task",
    "topic.before_begin",
    "topic.after_produce",
    "topic.before_commit",
    "topic.after_commit",
    "view.before_commit",
    "view.after_commit",
    "function.after_call",
    "warehouse.in_task",
    "warehouse.before_commit",
    "warehouse.after_commit",
)
"""Every boundary, in the order in which an epoch passes them."""
