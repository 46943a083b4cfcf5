"""Bringing an index up to the end of its topic."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from headwater.client import LATEST, BrokerError, Cluster
from headwater.client.fetch import Fetched
from headwater.client.reading import committed_records, following, read_from
from headwater.core.errors import ErrorCode
from headwater.events.errors import OutcomeUnknown, StaleIndex
from headwater.events.index import Index

__all__ = ["Progress", "catch_up", "check_positions", "ends", "fetch"]

Progress = Callable[[int, int], None]
"""Told how many offsets of how many have been read."""

_FETCH_BYTES = 4 * 1024 * 1024
_WAIT_MS = 100
_PATIENCE_SECONDS = 30.0


def ends(cluster: Cluster, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    """Return where partitions end, open transactions included."""
    return cluster.offsets(topic, dict.fromkeys(partitions, LATEST), read_committed=False)


def check_positions(cluster: Cluster, index: Index, topic: str, partitions: int) -> None:
    """Raise `StaleIndex` where an index knows more than its topic holds."""
    for partition, end in ends(cluster, topic, range(partitions)).items():
        position = index.position(partition)
        if position > end:
            raise StaleIndex(
                f"the index of {topic} knows offset {position} of partition {partition}, which ends at {end}: the "
                f"broker has lost records; rebuild the index with `headwater events rebuild-index {topic}`"
            )


def catch_up(
    cluster: Cluster,
    index: Index,
    topic: str,
    partition: int,
    *,
    until: int | None = None,
    progress: Progress | None = None,
) -> int:
    """Read what the index lacks, and return where it came to.

    That is what can be read by now; or, with `until`, all before that offset: a transaction that is open there
    is waited for, since events behind it may be committed.
    """
    position = first = index.position(partition)
    if until is None:
        until = cluster.offsets(topic, {partition: LATEST})[partition]
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while position < until:
        fetched = cluster.retrying(lambda at=position: fetch(cluster, topic, partition, at))  # type: ignore[misc]
        end = following(fetched, position)
        if end > position:
            index.take_in(partition, committed_records(fetched, position), end)
            position = end
            deadline = time.monotonic() + _PATIENCE_SECONDS
            if progress is not None:
                progress(min(position, until) - first, until - first)
        elif time.monotonic() > deadline:
            raise OutcomeUnknown(
                f"{topic}-{partition} shows nothing behind offset {position} though it goes on to {until}: a "
                "producer's transaction is open there; `headwater transactions list` names it"
            )
    return position


def fetch(cluster: Cluster, topic: str, partition: int, offset: int) -> Fetched:
    """Return what a partition holds from an offset on, as much as one request brings."""
    try:
        return read_from(cluster, topic, partition, offset, max_bytes=_FETCH_BYTES, max_wait_ms=_WAIT_MS)
    except BrokerError as error:
        if error.code != ErrorCode.offset_out_of_range:
            raise
        raise StaleIndex(
            f"offset {offset} of {topic}-{partition} is gone from the broker, which begins at another: events were "
            "deleted; restore the topic, or start a new store"
        ) from None
