"""What TransactionalMessageCopier prints."""

from __future__ import annotations

import pytest

from bench.scenarios.transactions import parse_copied
from bench.tools import ToolError


def report(processed: int, time: str) -> str:
    return (
        f'{{"transactionalId":"copier","stage":"ProcessLoop","time":"{time}","totalProcessed":{processed}}}'
    )


REPORTS = [
    report(0, "2026/01/15 20:11:10:000"),
    report(750, "2026/01/15 20:11:12:500"),
    report(1500, "2026/01/15 20:11:12:600"),
    report(2250, "2026/01/15 20:11:12:750"),
]


def test_the_rate_starts_with_the_end_of_the_first_transaction() -> None:
    assert parse_copied("\n".join(["noise", *REPORTS]), 2250) == pytest.approx(1500 / 0.25)


def test_a_copy_that_is_not_whole_is_no_result() -> None:
    with pytest.raises(ToolError, match="did not copy 3000"):
        parse_copied("\n".join(REPORTS), 3000)
    with pytest.raises(ToolError, match="did not copy"):
        parse_copied("no brokers", 1)
    with pytest.raises(ToolError, match="no time"):
        parse_copied(REPORTS[1], 750)
