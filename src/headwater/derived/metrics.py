"""The figures of stores that are kept in step, for Prometheus."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.derived.follower import Progress
from headwater.workers import figures
from headwater.workers.figures import Figure

__all__ = ["exposition"]

_FIGURES: tuple[Figure[Progress], ...] = (
    Figure(
        "headwater_derived_rows_total",
        "counter",
        "Rows that were changed or deleted in the store.",
        lambda store: store.changes,
    ),
    Figure(
        "headwater_derived_commits_total",
        "counter",
        "Commits of the store: rows and position at once.",
        lambda store: store.commits,
    ),
    Figure(
        "headwater_derived_unreadable_total",
        "counter",
        "Records that could not be read, and became dead letters.",
        lambda store: store.unreadable,
    ),
    Figure(
        "headwater_derived_retries_total",
        "counter",
        "Tries after a failure, of the store or the broker.",
        lambda store: store.retries,
    ),
    Figure(
        "headwater_derived_lag_records",
        "gauge",
        "How many offsets the store is behind its topic.",
        lambda store: store.behind,
    ),
    Figure(
        "headwater_derived_lag_seconds",
        "gauge",
        "From the time of the newest record that was applied last to that of its commit in the store.",
        lambda store: store.lag_seconds(),
    ),
    Figure(
        "headwater_derived_up",
        "gauge",
        "1 while the topic is followed, 0 while another try is waited for.",
        lambda store: int(store.state in ("catching up", "following")),
    ),
)


def exposition(stores: Mapping[str, Progress]) -> bytes:
    """Return the figures of stores, by name."""
    return figures.exposition("store", _FIGURES, stores)
