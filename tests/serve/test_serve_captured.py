"""Places in captured databases: which of two is further on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.capture.postgres.offset import lsn_text
from headwater.serve.captured import has_passed


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_lsns_are_compared_as_numbers(reached: int, asked: int) -> None:
    assert has_passed({"lsn": lsn_text(reached), "tables": {}}, lsn_text(asked)) == (reached >= asked)


@pytest.mark.parametrize(
    ("asked", "passed"),
    [
        ("binlog.000010:4", True),
        ("binlog.000009:99999", True),
        ("binlog.000010:5", False),
        ("binlog.000011:1", False),
    ],
)
def test_places_in_a_binary_log_go_by_file_and_position(asked: str, passed: bool) -> None:
    assert has_passed({"file": "binlog.000010", "pos": 4}, asked) is passed


def test_changes_in_sqlite_are_numbered() -> None:
    assert has_passed({"seq": 7}, "7")
    assert not has_passed({"seq": 7}, "8")


@pytest.mark.parametrize("position", [{"lsn": "0/1"}, {"file": "b.1", "pos": 1}, {"seq": 1}])
@pytest.mark.parametrize("asked", ["", "x", "1/", "/1", "b.1:", "zz/yy"])
def test_what_is_no_place_is_told(position: dict[str, object], asked: str) -> None:
    with pytest.raises(ValueError, match=r"invalid literal|base"):
        has_passed(position, asked)
