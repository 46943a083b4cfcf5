"""A query's status, folded out of Spark's progress."""

from __future__ import annotations

import doctest
from typing import Any

from headwater.pipeline import progress as module
from headwater.pipeline.progress import QueryProgress, total_lag


def offset(
    offsets: dict[str, int], highs: dict[str, int] | None = None, watermark: int | None = None
) -> dict[str, Any]:
    document: dict[str, Any] = {"offsets": offsets}
    if highs:
        document["highs"] = highs
    if watermark is not None:
        document["watermark"] = watermark
    return document


def progress(
    second: int, *sources: tuple[dict[str, Any], dict[str, Any], int], **more: Any
) -> dict[str, Any]:
    return {
        "runId": "run",
        "batchId": second,
        "timestamp": f"2026-01-01T00:00:{second:02d}.000Z",
        "processedRowsPerSecond": 100.0,
        "inputRowsPerSecond": 120.0,
        "durationMs": {"triggerExecution": 40},
        "stateOperators": [{"memoryUsedBytes": 1000}],
        "sources": [{"startOffset": a, "endOffset": b, "numInputRows": rows} for a, b, rows in sources],
        **more,
    }


def status(query: QueryProgress, now: int = 0, ends: dict[str, dict[int, int]] | None = None) -> Any:
    return query.status("running", now, ends or {})


def test_every_batch_counts_once() -> None:
    query = QueryProgress("shop.revenue", "view", ("orders",), {})
    first = progress(1, (offset({"0": 0}), offset({"0": 10}), 10))
    second = progress(2, (offset({"0": 10}), offset({"0": 15}), 5))
    for seen in ([first], [first, second], [first, second]):
        for each in seen:
            query.take(each, now=0)
    found = status(query)
    assert (found["input_rows"], found["epoch"], found["batch_ms"]) == (15, 2, 40)
    assert (found["state_bytes"], found["rows_per_second"]) == (1000, 100.0)


def test_what_operators_gave_up_is_counted() -> None:
    query = QueryProgress("shop.fraud", "alert", ("orders",), {})
    batches: list[dict[str, Any]] = [
        {"headwater_match.1": {"dropped": 3}, "headwater_match.2": {"dropped": 4}},
        {"headwater_match.1": {"dropped": None}, "theirs": {"rows": 9}},
        {"headwater_searches.1": {"refused": 2}},
    ]
    for second, metrics in enumerate(batches):
        query.take(progress(second, observedMetrics=metrics), now=0)
    found = status(query)
    assert (found["dropped_matches"], found["refused_searches"]) == (7, 2)


def test_a_row_that_only_tells_the_time_is_no_record() -> None:
    query = QueryProgress("shop.revenue", "view", ("orders",), {})
    query.take(progress(1, (offset({"0": 10}), offset({"0": 10}, {"0": 7}, 7), 1)), now=0)
    found = status(query)
    assert (found["input_rows"], found["rows_per_second"]) == (0, 0)
    assert found["watermark"] == "1970-01-01T00:00:00.007Z"


def test_lag_is_what_lies_behind_the_last_offset() -> None:
    query = QueryProgress("shop.revenue", "view", ("orders", "payments"), {})
    ends = {"orders": {0: 12, 1: 3}, "payments": {0: 4}}
    assert status(query, ends=ends)["lag"] == {"orders": {"0": 12, "1": 3}, "payments": {"0": 4}}
    query.take(
        progress(1, (offset({}), offset({"0": 10, "1": 3}), 13), (offset({}), offset({"0": 4}), 4)), now=0
    )
    lag = status(query, ends=ends)["lag"]
    assert lag == {"orders": {"0": 2, "1": 0}, "payments": {"0": 0}}
    assert total_lag(lag) == 2


def test_lag_of_sparks_own_connector() -> None:
    query = QueryProgress("shop.revenue", "view", ("orders",), {})
    query.take(progress(1, ({}, {"orders": {"0": 10}}, 10)), now=0)
    found = status(query, ends={"orders": {0: 12}})
    assert (found["lag"], found["input_rows"]) == ({"orders": {"0": 2}}, 10)


def test_the_partition_that_holds_the_watermark_and_since_when() -> None:
    query = QueryProgress("shop.revenue", "view", ("orders",), {"orders": 1000})
    highs = {"0": 90_000, "1": 61_000}
    query.take(progress(1, (offset({}), offset({"0": 1, "1": 1}, highs, 60_000), 2)), now=5)
    query.take(
        progress(2, (offset({"0": 1, "1": 1}), offset({"0": 9, "1": 1}, highs | {"0": 99_000}, 60_000), 8)),
        now=70,
    )
    assert status(query)["holding"] == {
        "topic": "orders",
        "partition": 1,
        "high": "1970-01-01T00:01:01.000Z",
        "since": 5,
    }


def test_a_partition_that_was_left_behind_holds_nothing() -> None:
    query = QueryProgress("shop.revenue", "view", ("orders",), {"orders": 0})
    highs = {"0": 90_000, "1": 10_000}
    query.take(progress(1, (offset({}), offset({"0": 1, "1": 1}, highs, 90_000), 2)), now=5)
    assert status(query)["holding"]["partition"] == 0


def test_the_topic_with_the_least_watermark_holds() -> None:
    query = QueryProgress("shop.paid", "stream", ("orders", "payments"), {})
    sources = [
        (offset({}), offset({"0": 1}, {"0": 900}, 900), 1),
        (offset({}), offset({"0": 1}, {"0": 100}, 100), 1),
    ]
    query.take(progress(1, *sources), now=5)
    found = status(query)
    assert (found["holding"]["topic"], found["watermark"]) == ("payments", "1970-01-01T00:00:00.100Z")


def test_a_query_that_has_done_nothing_has_a_whole_status() -> None:
    found = status(QueryProgress("shop.revenue", "view", ("orders",), {}), now=7)
    assert found == {
        "name": "shop.revenue",
        "kind": "view",
        "state": "running",
        "rows_per_second": 0.0,
        "input_rows": 0,
        "batch_ms": 0,
        "lag": {"orders": {}},
        "watermark": None,
        "state_bytes": 0,
        "epoch": None,
        "error": None,
        "holding": None,
        "dropped_matches": 0,
        "refused_searches": 0,
        "at": 7,
    }


def test_figures_that_spark_has_none_of() -> None:
    query = QueryProgress("shop.revenue", "view", ("orders",), {})
    query.take(
        progress(
            1, (offset({}), offset({"0": 1}), 1), processedRowsPerSecond=float("nan"), stateOperators=None
        ),
        now=0,
    )
    assert status(query)["rows_per_second"] == 0


def test_examples() -> None:
    assert doctest.testmod(module).failed == 0
