"""What clients can make the broker log is bounded."""

from __future__ import annotations

import logging

import pytest

from headwater.net.log_limit import LogLimit
from headwater.testing.clock import ManualClock

logger = logging.getLogger("headwater.tests.log_limit")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def _complain(limit: LogLimit, peer: str, times: int = 1, **fields: object) -> None:
    for i in range(times):
        limit.log(
            logger, logging.WARNING, peer, "closed the connection from %s: garbage %d", peer, i, **fields
        )


def test_one_peer_in_a_loop(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    limit = LogLimit(clock)
    _complain(limit, "10.0.0.1", 5_000)
    assert len(caplog.records) == 10
    clock.advance(10_000)
    _complain(limit, "10.0.0.1", 5_000)
    assert len(caplog.records) == 11
    assert vars(caplog.records[-1])["suppressed"] == 4_990
    assert "suppressed" not in vars(caplog.records[0])


def test_another_peer_is_heard(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    limit = LogLimit(clock)
    _complain(limit, "10.0.0.1", 50)
    _complain(limit, "10.0.0.2")
    assert vars(caplog.records[-1])["peer"] == "10.0.0.2"


def test_many_addresses_do_not_help(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    limit = LogLimit(clock)
    for i in range(5_000):
        _complain(limit, f"2001:db8::{i:x}", 3)
    assert len(caplog.records) == 200
    clock.advance(1_000)
    for i in range(5_000):
        _complain(limit, f"2001:db8:1::{i:x}")
    assert len(caplog.records) == 210


def test_fields_are_kept_and_short(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    _complain(LogLimit(clock), "10.0.0.1", client_id="x" * 30_000, reason="garbage", topic=None)
    fields = vars(caplog.records[0])
    assert (fields["peer"], fields["reason"], len(fields["client_id"])) == ("10.0.0.1", "garbage", 501)
    assert "topic" not in fields


def test_what_is_not_logged_costs_nothing(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    limit = LogLimit(clock)
    caplog.set_level(logging.ERROR, logger.name)
    _complain(limit, "10.0.0.1", 50)
    caplog.set_level(logging.WARNING, logger.name)
    _complain(limit, "10.0.0.1")
    assert [record.getMessage() for record in caplog.records] == [
        "closed the connection from 10.0.0.1: garbage 0"
    ]
