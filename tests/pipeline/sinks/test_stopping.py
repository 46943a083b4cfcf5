from __future__ import annotations

import queue
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater.pipeline.sinks.stopping import InterruptedCall, stoppable

from .conftest import Epochs

pytestmark = pytest.mark.real

# Java's pattern takes some hundred bytes of a stack of one megabyte for each character.
SHORT = 2000


@pytest.mark.parametrize("action", [DataFrame.collect, DataFrame.toArrow])
def test_a_query_that_is_stopped_in_a_batch_ends_with_an_interruption_that_spark_knows(
    action: Callable[[DataFrame], object], epochs: Epochs, tmp_path: Path
) -> None:
    epochs.add({"id": "a", "n": 1})
    begun = tmp_path / "begun"

    @F.udf("string", useArrow=True)
    def waits(_: object) -> None:
        begun.touch()
        time.sleep(3)

    raised: queue.Queue[BaseException] = queue.Queue()

    def act(frame: DataFrame, epoch: int) -> None:
        action(frame.withColumn("waited", waits("id")))

    def told(frame: DataFrame, epoch: int) -> None:
        try:
            stoppable(act)(frame, epoch)
        except BaseException as error:
            raised.put(error)
            raise

    running = (
        epochs.read()
        .writeStream.foreachBatch(told)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        while not begun.exists():
            assert running.isActive
            time.sleep(0.01)
    finally:
        running.stop()
    error = raised.get(timeout=60)
    assert isinstance(error, InterruptedCall)
    assert len("".join(traceback.format_exception(error))) < SHORT
    assert running.exception() is None
