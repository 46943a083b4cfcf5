"""What the pipelines say of themselves: the JSON that `headwater run` leaves in the store."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from headwater.views import ViewStore

__all__ = ["lag", "pipelines", "watermark_seconds"]


def pipelines(store: ViewStore) -> list[dict[str, Any]]:
    """Return the statuses of all pipelines; one that is no JSON object is left out."""
    found = []
    for name, text in store.statuses().items():
        try:
            status = json.loads(text)
        except ValueError:
            continue
        if isinstance(status, dict):
            found.append({"name": name, **status})
    return found


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
