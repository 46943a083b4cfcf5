from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from headwater.pipeline.source.meeting import Meeting

TOPICS = ("orders", "payments", "refunds")


def seats(directory: Path) -> list[Meeting]:
    return [Meeting(str(directory / "meeting"), topic, TOPICS) for topic in TOPICS]


def test_the_lowest_of_the_others_that_are_not_idle(tmp_path: Path) -> None:
    orders, payments, refunds = seats(tmp_path)
    assert payments.lowest() is None
    orders.tell(100, idle=False)
    payments.tell(10, idle=True)
    assert payments.lowest() == 100
    refunds.tell(50, idle=False)
    assert payments.lowest() == 50
    refunds.tell(50, idle=True)
    assert payments.lowest() == 100


def test_when_all_are_idle_nobody_follows_anybody(tmp_path: Path) -> None:
    orders, payments, refunds = seats(tmp_path)
    for meeting, time in ((orders, 100), (payments, 10), (refunds, 50)):
        meeting.tell(time, idle=True)
    assert [meeting.lowest() for meeting in (orders, payments, refunds)] == [None, None, None]


def test_one_that_is_read_but_has_no_time_yet_is_waited_for(tmp_path: Path) -> None:
    orders, payments, refunds = seats(tmp_path)
    orders.tell(100, idle=False)
    refunds.tell(None, idle=False)
    assert payments.lowest() is None


def test_the_slowest_of_some_counts_whether_it_goes_on_or_not(tmp_path: Path) -> None:
    orders, payments, refunds = seats(tmp_path)
    assert refunds.slowest(["orders", "payments"]) is None
    orders.tell(100, idle=False)
    assert refunds.slowest(["orders", "payments"]) == 100
    payments.tell(10, idle=True)
    refunds.tell(5, idle=False)
    assert refunds.slowest(["orders", "payments"]) == 10


def test_what_a_dead_process_told_does_not_count(tmp_path: Path) -> None:
    orders, payments, _ = seats(tmp_path)
    script = (
        "import sys; from headwater.pipeline.source.meeting import Meeting; "
        "Meeting(sys.argv[1], 'refunds', ()).tell(5, idle=False)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "meeting")], check=True)
    orders.tell(100, idle=False)
    assert (tmp_path / "meeting" / "refunds.json").exists()
    assert payments.lowest() == 100


def test_topics_that_the_query_does_not_read_any_more_do_not_count(tmp_path: Path) -> None:
    orders, payments, _ = seats(tmp_path)
    Meeting(str(tmp_path / "meeting"), "clicks", ()).tell(5, idle=False)
    orders.tell(100, idle=False)
    assert payments.lowest() == 100


def test_nothing_is_left_beside_the_files(tmp_path: Path) -> None:
    orders, payments, _ = seats(tmp_path)
    orders.tell(100, idle=False)
    orders.tell(200, idle=False)
    assert [file.name for file in (tmp_path / "meeting").iterdir()] == ["orders.json"]
    assert payments.lowest() == 200
