from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from headwater.app import Delivery
from headwater.pipeline.sinks import start_function
from headwater.pipeline.sinks.function import CHUNK, Function

from .conftest import Epochs

pytestmark = pytest.mark.real


def run(frame: DataFrame, function: Function, directory: Path) -> None:
    query = start_function(
        frame, function=function, key=["id", "n"], query="shop.f", checkpoint=str(directory / "checkpoint")
    )
    try:
        query.processAllAvailable()
    finally:
        query.stop()


def test_a_function_gets_rows_as_python_values(epochs: Epochs, tmp_path: Path) -> None:
    epochs.add({"id": "a,b", "n": 1, "at": "2026-01-01T00:00:00Z"})
    got: list[Delivery] = []
    run(epochs.read(), got.extend, tmp_path)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert got == [Delivery("a%2Cb,1", {"id": "a,b", "n": 1, "at": at, "gone": None})]


def test_a_function_that_raises_gets_all_of_the_epoch_again_under_the_same_ids(
    epochs: Epochs, tmp_path: Path
) -> None:
    epochs.add(*({"id": f"{number:04}", "n": 0} for number in range(CHUNK + 5)))
    calls: list[list[str]] = []

    def fails_once(deliveries: list[Delivery]) -> None:
        calls.append([delivery.id for delivery in deliveries])
        if len(calls) == 2:
            raise ConnectionError("nobody answers")

    said = (
        r"shop\.f: the function fails with ConnectionError: nobody answers \(.*test_function_sink\.py:\d+\);"
    )
    with pytest.raises(Exception, match=said):
        run(epochs.read(), fails_once, tmp_path)
    run(epochs.read(), fails_once, tmp_path)
    run(epochs.read(), fails_once, tmp_path)
    assert [len(call) for call in calls] == [CHUNK, 5, CHUNK, 5]
    assert calls[2:] == calls[:2]
