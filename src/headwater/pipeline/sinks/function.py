"""A Python function as a sink, at least once.

The function is called on the driver with the rows of an epoch, some at a time. Where it raises, or the
process dies before Spark has noted the epoch, the epoch comes again: all of its rows, also those that the
function had before. A row that comes again has the same id, the text of its key, by which whoever the
function tells about it can leave it out. So the key has to be one that no other row has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from headwater.app import Delivery
from headwater.pipeline.boundaries import boundary
from headwater.pipeline.failures import place
from headwater.pipeline.sinks.columns import SinkError, key_text, refuse_null
from headwater.pipeline.sinks.output_mode import upserting_mode
from headwater.pipeline.sinks.stopping import stoppable

__all__ = ["start_function"]

CHUNK = 1000
"""How many rows the function gets at a time."""
_ID = "_delivery_id"

Function = Callable[[list[Delivery]], object]


def start_function(
    df: DataFrame, *, function: Function, key: Sequence[str], query: str, checkpoint: str
) -> StreamingQuery:
    """Start a query that calls a function with its rows."""
    text = key_text(df, key)
    for column in key:
        text = refuse_null(df, column, query=query, text=text)
    return (
        df.withColumn(_ID, text)
        .writeStream.queryName(query)
        .foreachBatch(stoppable(Caller(function, query).call))
        .outputMode(upserting_mode(df))
        .option("checkpointLocation", checkpoint)
        .start()
    )


class Caller:
    """Hands a function the rows of each epoch."""

    def __init__(self, function: Function, query: str) -> None:
        self._function = function
        self._query = query

    def call(self, frame: DataFrame, epoch: int) -> None:
        """Call the function with all rows of an epoch; Spark's `foreachBatch` calls this."""
        for rows in frame.toArrow().to_batches(max_chunksize=CHUNK):
            deliveries = [Delivery(row.pop(_ID), row) for row in rows.to_pylist()]
            try:
                self._function(deliveries)
            except Exception as error:
                where = f" ({found})" if (found := place(error)) else ""
                raise SinkError(
                    f"{self._query}: the function fails with {type(error).__name__}: {error}{where}; "
                    f"epoch {epoch} will come again"
                ) from error
            boundary("function.after_call")
