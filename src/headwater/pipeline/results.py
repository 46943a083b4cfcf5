"""Whether what a function returns can be written as it was declared."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.types import TimestampType

from headwater.app import Alert, AppError, Function, Stream, View
from headwater.app.errors import did_you_mean

__all__ = ["check_result"]


def check_result(function: Function, frame: DataFrame) -> None:
    """Refuse a result that cannot be written as declared."""
    if not frame.isStreaming:
        problem = f"{function.name} returns a DataFrame that reads none of its inputs"
        raise AppError(function.where, problem, f"derive it from {' or '.join(function.inputs)}")
    if not isinstance(function, Alert):
        for column in function.key:
            if column not in frame.columns:
                problem = f"{function.name} has the key {column}, and its rows no such column"
                guess = did_you_mean(column, frame.columns)
                raise AppError(function.where, problem + guess, f"there are {', '.join(frame.columns)}")
    if isinstance(function, View):
        for index in function.indexes:
            if index.split(".")[0] not in frame.columns:
                problem = f"{function.name} has an index for {index}, and its rows no such column"
                guess = did_you_mean(index, frame.columns)
                raise AppError(function.where, problem + guess, f"there are {', '.join(frame.columns)}")
    if isinstance(function, Stream) and function.event_time is not None:
        times = [each.name for each in frame.schema.fields if isinstance(each.dataType, TimestampType)]
        if function.event_time not in times:
            problem = (
                f"{function.name} has the event time {function.event_time}, and its rows no such timestamp"
            )
            guess = did_you_mean(function.event_time, times)
            raise AppError(function.where, problem + guess, f"there are {', '.join(frame.columns)}")
    twice = sorted({name for name in frame.columns if frame.columns.count(name) > 1})
    if twice:
        problem = f"{function.name} returns several columns called {', '.join(twice)}"
        raise AppError(function.where, problem, "drop or rename all but one, with .drop() or .alias()")
