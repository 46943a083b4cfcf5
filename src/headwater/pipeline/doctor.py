"""What holds each query back, in one sentence, from the statuses that `headwater run` leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.pipeline.progress import total_lag

__all__ = ["diagnose"]

STALE_MS = 30_000
"""A status is written every few seconds; one this old is of a driver that is gone."""
HELD_MS = 15_000
BEHIND_RECORDS = 1_000


def diagnose(name: str, status: Mapping[str, Any] | None, now: int) -> str:
    """Return how a query is, given its last status.

    >>> diagnose("shop.revenue", None, now=0)
    'shop.revenue has not run yet: start it with `headwater run` or `headwater up`.'
    """
    if status is None:
        return f"{name} has not run yet: start it with `headwater run` or `headwater up`."
    age = now - status["at"]
    if status["state"] == "stopped":
        return f"{name} was stopped {_duration(age)} ago{_behind_too(status)}."
    if age > STALE_MS:
        return f"{name} is not running: nothing was heard of it for {_duration(age)}{_behind_too(status)}."
    if status["state"] != "running":
        again = ", and is started again shortly" if status["state"] == "restarting" else ""
        return f"{name} fails{again}: {_reason(status)}."
    return f"{name} {_running(status, now)}.{_left_out(status)}"


def _running(status: Mapping[str, Any], now: int) -> str:
    lag = total_lag(status["lag"])
    if status["epoch"] is None:
        return "waits for its first records" if not lag else f"starts, with {lag:,} records to read"
    if lag > max(BEHIND_RECORDS, 2 * status["rows_per_second"]):
        return _behind(status, lag)
    if held := _held(status, now):
        return held
    if status["error"]:
        return f"runs again after a failure: {_reason(status)}"
    if lag and not status["rows_per_second"]:
        return f"is about to read {lag:,} records, or in its batch with them, after {status['input_rows']:,} so far"
    if not status["rows_per_second"]:
        return f"is idle: it has read all {status['input_rows']:,} records so far{_since(status)}"
    return (
        f"is healthy: {status['rows_per_second']:,.0f} rows/s in batches of {status['batch_ms']:,} ms,"
        f" {lag:,} records behind"
    )


def _left_out(status: Mapping[str, Any]) -> str:
    """Return what operators had to give up since the query was started, as sentences of their own."""
    found = ""
    if dropped := status.get("dropped_matches", 0):
        found += (
            f" It has given up {dropped:,} partial matches: give the pattern a within=, or a higher limit=."
        )
    if refused := status.get("refused_searches", 0):
        found += f" It could not read {refused:,} stored searches: unreadable_searches tells which, and why."
    return found


def _behind(status: Mapping[str, Any], lag: int) -> str:
    arriving, done = status.get("input_rows_per_second", 0.0), status["rows_per_second"]
    if arriving > done:
        pace = f"records arrive at {arriving:,.0f}/s and it does {done:,.0f}/s, so it falls further behind"
    else:
        pace = f"it does {done:,.0f} rows/s" + (f", {_duration(1000 * lag / done)} of work" if done else "")
    return f"is behind by {lag:,} records, most of them in {_worst(status['lag'])}: {pace}"


def _held(status: Mapping[str, Any], now: int) -> str | None:
    """Return which partition holds the watermark, where it has for long."""
    holding = status.get("holding")
    if not holding or holding.get("since") is None or now - holding["since"] < HELD_MS:
        return None
    if status["rows_per_second"] == 0:
        return None  # nothing comes at all: it is idle, and time stands still
    return (
        f"is held by partition {holding['partition']} of {holding['topic']}, which for"
        f" {_duration(now - holding['since'])} brought nothing newer than {holding['high']}:"
        f" its windows and joins wait there"
    )


def _reason(status: Mapping[str, Any]) -> str:
    return str(status["error"] or "it gave no reason").rstrip(".")


def _behind_too(status: Mapping[str, Any]) -> str:
    lag = total_lag(status["lag"])
    return f", and {lag:,} records waited for it then" if lag else ""


def _since(status: Mapping[str, Any]) -> str:
    return f", and its watermark is {status['watermark']}" if status["watermark"] else ""


def _worst(lag: Mapping[str, Mapping[str, int]]) -> str:
    _, topic, partition = max(
        (behind, topic, partition) for topic, each in lag.items() for partition, behind in each.items()
    )
    return f"partition {partition} of {topic}"


def _duration(milliseconds: float) -> str:
    """Return a length of time for a person.

    >>> _duration(4_000), _duration(150_000), _duration(7_500_000)
    ('4 s', '2 min', '2 h')
    """
    seconds = int(milliseconds / 1000)
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"
