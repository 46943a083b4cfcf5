"""Waiting for records at the ends of partitions, with the answer's other half: where the partitions end.

One Fetch, held back by the broker until something comes, tells both. It asks for one byte; a broker answers
with the first batch all the same, which is dropped: a task reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headwater.client import BrokerError, ClientError, Cluster
from headwater.client.fetch import Fetched, Place, begin_fetch, end_fetch
from headwater.core.errors import ErrorCode

__all__ = ["Bounds", "poll"]

SEVERAL_BROKERS_WAIT_MS = 100
"""All brokers are waited for, so one that has news would wait for the others' silence."""


class Bounds(NamedTuple):
    """The first offset that a partition still holds, and the end of what is committed."""

    start: int
    end: int


def poll(cluster: Cluster, positions: Mapping[Place, int], wait_ms: int) -> dict[Place, Bounds | None]:
    """Wait until there is something at one of the positions, at most `wait_ms`.

    Returns what is known of the partitions asked for; None where the position is not one that it holds.
    """

    def attempt() -> dict[Place, Bounds | None]:
        by_node: dict[int, dict[Place, int]] = {}
        for place, offset in positions.items():
            by_node.setdefault(cluster.leader(*place), {})[place] = offset
        wait = wait_ms if len(by_node) == 1 else min(wait_ms, SEVERAL_BROKERS_WAIT_MS)
        try:
            for node, places in by_node.items():
                begin_fetch(cluster.connection(node), places, max_bytes=1, max_wait_ms=wait)
            found: dict[Place, Fetched] = {}
            for node in by_node:
                found |= end_fetch(cluster.connection(node))
        except ClientError:
            for node in by_node:
                cluster.drop(node)
            raise
        return {place: _bounds(place, fetched) for place, fetched in found.items()}

    return cluster.retrying(attempt) if positions else {}


def _bounds(place: Place, fetched: Fetched) -> Bounds | None:
    if fetched.error_code == ErrorCode.offset_out_of_range:
        return None
    if fetched.error_code:
        raise BrokerError(fetched.error_code, f"{place[0]}-{place[1]}")
    return Bounds(fetched.log_start_offset, fetched.last_stable_offset)
