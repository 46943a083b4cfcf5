"""Durations are read as people write them, and written as they are read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.app import durations
from headwater.core.errors import SettingError

YEAR = 366 * 24 * 3600 * 1000


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0 seconds", 0),
        ("500 ms", 500),
        ("1 second", 1_000),
        ("90s", 90_000),
        ("2 minutes", 120_000),
        ("5 min", 300_000),
        ("1 hour 30 minutes", 5_400_000),
        ("1h 30min", 5_400_000),
        ("  10   MINUTES ", 600_000),
        ("3 days", 259_200_000),
        ("2 weeks", 1_209_600_000),
    ],
)
def test_reads(text: str, milliseconds: int) -> None:
    assert durations.milliseconds(text) == milliseconds


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "'' is not a duration; write numbers and units"),
        ("soon", "'soon' is not a duration at 'soon'; write numbers and units"),
        ("5", "'5' is not a duration at '5'; write numbers and units"),
        ("-1 minute", "at '-1 minute'; write numbers and units"),
        ("1.5 hours", "at '1.5 hours'; write numbers and units"),
        ("1 minute and a half", "at 'and a half'; write numbers and units"),
        ("2 fortnights", "'fortnights' is no unit; write numbers and units"),
        ("1 month", "a month has no fixed length; write it in days"),
        ("2 years", "a year has no fixed length; write it in days"),
        ("9999999999 weeks", "is longer than 1000 years; use a shorter duration"),
    ],
)
def test_refuses(text: str, says: str) -> None:
    with pytest.raises(SettingError) as refused:
        durations.milliseconds(text)
    assert says in str(refused.value)


@given(st.integers(0, 999 * YEAR))
def test_what_is_written_is_read_again(milliseconds: int) -> None:
    assert durations.milliseconds(durations.text(milliseconds)) == milliseconds


@given(st.text() | st.text("1 5.-minutesh"))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    try:
        milliseconds = durations.milliseconds(text)
    except SettingError:
        return
    assert durations.milliseconds(durations.text(milliseconds)) == milliseconds


def test_a_negative_duration_is_not_written() -> None:
    with pytest.raises(ValueError, match="-1 ms"):
        durations.text(-1)
