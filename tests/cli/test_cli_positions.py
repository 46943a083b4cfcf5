"""Places in a partition, as users write them."""

from __future__ import annotations

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.cli.positions import EARLIEST, LATEST, Position, PositionType, parse_position

NOW = 1_794_776_897_519


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", EARLIEST),
        ("latest", LATEST),
        ("0", Position(offset=0)),
        ("999999999999", Position(offset=999_999_999_999)),
        ("offset:1794776897519", Position(offset=1_794_776_897_519)),
        ("1794776897519", Position(time_ms=1_794_776_897_519)),
        ("time:12", Position(time_ms=12)),
        ("2026-11-15T20:00:00Z", Position(time_ms=1_794_772_800_000)),
        ("2026-11-15T21:00:00.250+01:00", Position(time_ms=1_794_772_800_250)),
        ("time:2026-11-15T20:00:00Z", Position(time_ms=1_794_772_800_000)),
        ("-10m", Position(time_ms=NOW - 600_000)),
        ("-1.5h", Position(time_ms=NOW - 5_400_000)),
        ("-250ms", Position(time_ms=NOW - 250)),
        ("-99999999d", Position(time_ms=0)),
    ],
)
def test_position(text: str, position: Position) -> None:
    assert parse_position(text, NOW) == position


@pytest.mark.parametrize(
    "text",
    [
        *["", "now", "-1", "-10", "-10x", "1.5", "offset:", "offset:-1", "offset:x", "time:", "2026-13-01"],
        *[str(2**63), f"offset:{2**63}", "10m", "0x10", "yesterday", "²"],
    ],
)
def test_not_a_position(text: str) -> None:
    assert parse_position(text, NOW) is None
    with pytest.raises(click.BadParameter, match="is not earliest, latest, an offset"):
        PositionType().convert(text, None, None)


@given(st.text() | st.from_regex(r"(offset:|time:|-)?[0-9T:.+-]*[a-z]{0,2}", fullmatch=True))
def test_any_text_is_a_position_or_none(text: str) -> None:
    position = parse_position(text, NOW)
    if position is not None:
        for number in (position.offset, position.time_ms):
            assert number is None or 0 <= number < 2**63
