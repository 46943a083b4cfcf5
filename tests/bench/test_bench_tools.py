"""What Kafka's performance tools print."""

from __future__ import annotations

import pytest

from bench.tools import Consumed, Produced, ToolError, parse_consumed, parse_produced

PRODUCED = """\
1355041 records sent, 271008.2 records/sec (25.85 MB/sec), 969.7 ms avg latency, 1531.0 ms max latency.
1400000 records sent, 280000.0 records/sec (26.70 MB/sec), 960.0 ms avg latency, 1200.0 ms max latency.
5000000 records sent, 271547.276381 records/sec (25.90 MB/sec), 973.42 ms avg latency, 1531.00 ms max latency, \
954 ms 50th, 1321 ms 95th, 1445 ms 99th, 1495 ms 99.9th.
"""
CONSUMED = """\
start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, \
fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec
2026-01-15 20:11:14:256, 2026-01-15 20:11:17:352, 476.8372, 154.0172, 5000000, 1614987.0801, 672, 2424, \
196.7150, 2062706.2706
"""


def test_the_last_line_of_the_producer_counts() -> None:
    assert parse_produced(PRODUCED) == Produced(5_000_000, 271547.276381)


def test_the_consumer_is_timed_with_its_joining_of_the_group() -> None:
    assert parse_consumed(CONSUMED) == Consumed(5_000_000, 1614987.0801)


def test_warnings_around_the_table_do_not_matter() -> None:
    assert parse_consumed(f"WARNING: slow, really\n{CONSUMED}bye, now\n").records == 5_000_000


def test_output_that_is_not_understood_is_shown() -> None:
    with pytest.raises(ToolError, match="no brokers"):
        parse_produced("no brokers")
    with pytest.raises(ToolError, match="no brokers"):
        parse_consumed("no brokers")
    with pytest.raises(ToolError, match="no table"):
        parse_consumed(CONSUMED.splitlines()[0])
