"""The reserve of the disk: when records are refused, and when they are taken again."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.net.disk_watch import AUTOMATIC, DiskWatch

MB = 1_000_000


@pytest.mark.parametrize(
    ("wanted", "size", "reserve"),
    [
        (AUTOMATIC, 500 * 1000 * MB, 1024**3),
        (AUTOMATIC, 20 * 1000 * MB, 1000 * MB),
        (AUTOMATIC, 24 * MB, 1_200_000),
        (0, 24 * MB, 0),
        (50 * MB, 24 * MB, 50 * MB),
    ],
)
def test_the_reserve(wanted: int, size: int, reserve: int) -> None:
    assert DiskWatch(Path("/"), wanted).reserve(size) == reserve


def test_refusal_begins_below_the_reserve_and_ends_a_tenth_above(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    watch = DiskWatch(Path("/"), 100 * MB)
    refused = []
    for free in (101, 100, 99, 50, 100, 109, 110, 101, 99):
        watch.judge(free * MB, 1000 * MB)
        refused.append(watch.refusal is not None)
    assert refused == [False, False, True, True, True, True, False, False, True]
    messages = [record.getMessage() for record in caplog.records]
    assert ["refused" in message for message in messages] == [True, False, True], "each change is said once"
    assert "99000000 bytes left" in messages[0]
    assert "headwater.disk.reserve.bytes" in messages[0]


def test_no_reserve_refuses_nothing() -> None:
    watch = DiskWatch(Path("/"), 0)
    watch.judge(0, 1000 * MB)
    assert watch.refusal is None


@given(st.lists(st.integers(0, 300), max_size=30))
def test_below_the_reserve_is_always_refused_and_well_above_never(levels: list[int]) -> None:
    watch = DiskWatch(Path("/"), 100)
    for free in levels:
        before = watch.refusal is not None
        watch.judge(free, 1000)
        assert (watch.refusal is not None) == (free < 100 or (before and free < 110))


def test_a_disk_that_cannot_be_asked_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    watch = DiskWatch(tmp_path / "gone", AUTOMATIC)
    watch.check()
    assert watch.refusal is None
    assert "not known" in caplog.text
