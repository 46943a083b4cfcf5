"""The figures of running captures, for Prometheus."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.capture.runner import Progress
from headwater.workers import figures
from headwater.workers.figures import Figure

__all__ = ["exposition"]

_FIGURES: tuple[Figure[Progress], ...] = (
    Figure(
        "headwater_capture_rows_total",
        "counter",
        "Changes and rows of snapshots that were published.",
        lambda capture: capture.rows,
    ),
    Figure(
        "headwater_capture_records_total",
        "counter",
        "Records that were published, tombstones among them.",
        lambda capture: capture.records,
    ),
    Figure(
        "headwater_capture_transactions_total",
        "counter",
        "Kafka transactions that were committed.",
        lambda capture: capture.commits,
    ),
    Figure(
        "headwater_capture_retries_total",
        "counter",
        "Tries after an error that may be over in a moment.",
        lambda capture: capture.retries,
    ),
    Figure(
        "headwater_capture_lag_seconds",
        "gauge",
        "From the last change's commit in the database to that of its record.",
        lambda capture: capture.lag_seconds(),
    ),
    Figure(
        "headwater_capture_up",
        "gauge",
        "1 while the database is followed, 0 while another try is waited for.",
        lambda capture: int(capture.state in ("snapshot", "streaming")),
    ),
)


def exposition(captures: Mapping[str, Progress]) -> bytes:
    """Return the figures of captures, by name."""
    return figures.exposition("capture", _FIGURES, captures)
