"""What the pipelines say of themselves: the JSON that `headwater run` leaves in the store."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import Any

from headwater.views import ViewStore

__all__ = ["lag", "pipelines", "watermark_seconds"]

STALE_MS = 30_000
"""A status is written every few seconds; one this old is of a driver that is gone."""


def pipelines(store: ViewStore) -> list[dict[str, Any]]:
    """Return the statuses of all pipelines; one that is no JSON object is left out.

    Who is killed leaves a status that says "running": it has failed where nothing was heard of its driver for
    long, and is stopped where that driver runs others by now.
    """
    now = time.time_ns() // 1_000_000
    found = _statuses(store)
    heard: dict[str, int] = {}
    for status in found:
        app = _app(status)
        heard[app] = max(heard.get(app, 0), _at(status, now))
    for status in found:
        if status.get("state") not in ("running", "restarting") or now - _at(status, now) <= STALE_MS:
            continue
        silent_ms = now - heard[_app(status)]
        if silent_ms <= STALE_MS:
            status["state"] = "stopped"
        else:
            status["state"] = "failed"
            status["error"] = f"nothing was heard of it for {silent_ms // 1000:,} s: its driver is gone"
    return found


def _statuses(store: ViewStore) -> list[dict[str, Any]]:
    found = []
    for name, text in store.statuses().items():
        try:
            status = json.loads(text)
        except ValueError:
            continue
        if isinstance(status, dict):
            found.append({"name": name, **status})
    return found


def _app(status: dict[str, Any]) -> str:
    return str(status["name"]).rpartition(".")[0]


def _at(status: dict[str, Any], now: int) -> int:
    at = status.get("at")
    return at if isinstance(at, int) else now


def lag(status: dict[str, Any]) -> int:
    """Return how many records a pipeline has still to read, over all its topics and partitions."""
    topics = status.get("lag") or {}
    return sum(int(count) for partitions in topics.values() for count in partitions.values())


def watermark_seconds(status: dict[str, Any]) -> float | None:
    """Return a pipeline's watermark in seconds since the epoch."""
    try:
        return datetime.fromisoformat(str(status.get("watermark"))).timestamp()
    except ValueError:
        return None
