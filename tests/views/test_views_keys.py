"""Key texts: readable, the same from Python and from Spark, and never two rows' at once."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.views.keys import encode, key_of

WINDOW = {"start": "2026-03-01T10:00:00.000Z", "end": "2026-03-01T10:01:00.000Z"}


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (["u17"], "u17"),
        (["a,b%"], "a,b%"),
        ([17], "17"),
        ([1.5], "1.5"),
        ([True], "true"),
        ([None], "%0"),
        ([""], ""),
        (["", None], ",%0"),
        (["a,b", "50%"], "a%2Cb,50%25"),
        ([WINDOW], "2026-03-01T10:00:00.000Z"),
        ([WINDOW, "DE"], "2026-03-01T10:00:00.000Z,DE"),
        ([datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=2)))], "2026-03-01T10:00:00.000Z"),
        ([datetime(2026, 3, 1, 10, 0, 0, 123456, tzinfo=UTC)], "2026-03-01T10:00:00.123456Z"),
        ([date(2026, 3, 1), 2], "2026-03-01,2"),
    ],
)
def test_examples(values: list[object], text: str) -> None:
    assert encode(values) == text


def test_a_row_has_the_key_of_its_columns() -> None:
    assert key_of({"window": WINDOW, "country": "DE", "n": 7}, ["window", "country"]) == encode(
        [WINDOW, "DE"]
    )
    assert key_of({"n": 7}, ["country", "n"]) == "%0,7"


_values = st.lists(st.none() | st.text("a,%0", max_size=4), min_size=2, max_size=3)


@given(_values, _values)
def test_different_values_have_different_keys(one: list[str | None], other: list[str | None]) -> None:
    if len(one) == len(other):
        assert (encode(one) == encode(other)) == (one == other)
