"""Places in a partition as a user writes them: its ends, an offset, or a time.

earliest, latest
42, offset:42                     an offset
2026-11-15T20:00:00Z, 2026-11-15  ISO 8601; without a zone it is the machine's
1763236800000, time:12            milliseconds since the epoch: from 13 digits on, a number is a time
-10m                              so long ago: ms, s, m, h or d
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Future

    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

_TIME_FROM = 10**12
_RELATIVE = re.compile(r"-([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MAX = 2**63 - 1

Key = tuple[str, int]


@dataclass(frozen=True)
class Position:
    """A place in a partition; at most one of its fields is set besides `latest`."""

    latest: bool = False
    offset: int | None = None
    time_ms: int | None = None


EARLIEST = Position()
LATEST = Position(latest=True)


def parse_time(text: str, now_ms: int) -> int | None:
    """Return the milliseconds since the epoch that a text stands for, or None where it is no time."""
    if match := _RELATIVE.fullmatch(text):
        return max(now_ms - int(float(match[1]) * _UNITS[match[2]]), 0)
    if text.isascii() and text.isdigit():
        return int(text) if int(text) <= _MAX else None
    try:
        when = datetime.fromisoformat(text)
        return max(int(when.timestamp() * 1000), 0)
    except (ValueError, OverflowError, OSError):
        return None


def parse_position(text: str, now_ms: int) -> Position | None:
    """Return the position that a text stands for, or None."""
    if text in ("earliest", "latest"):
        return LATEST if text == "latest" else EARLIEST
    kind, colon, rest = text.partition(":")
    if colon and kind == "offset":
        is_offset = rest.isascii() and rest.isdigit() and int(rest) <= _MAX
        return Position(offset=int(rest)) if is_offset else None
    is_time = bool(colon) and kind == "time"
    if text.isascii() and text.isdigit() and int(text) < _TIME_FROM:
        return Position(offset=int(text))
    time_ms = parse_time(rest if is_time else text, now_ms)
    return None if time_ms is None else Position(time_ms=time_ms)


class PositionType(click.ParamType[Position]):
    """A place in a partition."""

    name = "POSITION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Position:
        """Return the position, or end with status 2."""
        if isinstance(value, Position):
            return value
        position = parse_position(str(value), int(time.time() * 1000))
        if position is None:
            self.fail(
                f"{value!r} is not earliest, latest, an offset (42), or a time "
                "(2026-11-15T20:00:00Z, -10m, 1763236800000).",
                param,
                ctx,
            )
        return position


def look_up(
    admin: AdminClient, partitions: Iterable[TopicPartition], position: Position
) -> dict[Key, Future[Any]]:
    """Ask for the offset of an end or a time in each partition; it is -1 where no record is that late."""
    from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # it names no __all__

    spec: Any = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
    if position.latest:
        spec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    elif position.time_ms is not None:
        spec = OffsetSpec.for_timestamp(position.time_ms)
    wanted = dict.fromkeys(partitions, spec)
    futures = admin.list_offsets(wanted) if wanted else {}
    return {(place.topic, place.partition): future for place, future in futures.items()}


def offsets_at(
    admin: AdminClient, partitions: Iterable[TopicPartition], position: Position
) -> dict[Key, int]:
    """Return the offset of an end or a time in each partition; it is -1 where no record is that late."""
    from headwater.cli.client import result

    return {key: result(future).offset for key, future in look_up(admin, partitions, position).items()}


def resolve(admin: AdminClient, partitions: list[TopicPartition], position: Position) -> dict[Key, int]:
    """Return the offset of a position in each partition, kept between the partition's ends."""
    ends = offsets_at(admin, partitions, LATEST)
    if position.latest:
        return ends
    starts = offsets_at(admin, partitions, EARLIEST)
    if position.time_ms is not None:
        found = offsets_at(admin, partitions, position)
        # A time after the last record is the end: what comes next is the first that is late enough.
        return {key: ends[key] if offset < 0 else offset for key, offset in found.items()}
    if position.offset is not None:
        return {key: min(max(position.offset, starts[key]), end) for key, end in ends.items()}
    return starts
