"""Calls from Spark's batches that may be cut short when their query is stopped.

Spark tells an interrupted call from a failed one by a pattern, over the text of what Python raised. Java matches that
pattern with some stack for each character, and the text holds a stack trace of its own: the thread ends with a
`StackOverflowError`, a thousand lines long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame

__all__ = ["InterruptedCall", "stoppable"]

_STACK_FRAME = "\tat "
# The thread of the query, and the job that it waits for.
_INTERRUPTIONS = ("Interrupt", "SPARK_JOB_CANCELLED")


class InterruptedCall(Exception):
    """A call of Spark that was interrupted, in words that Spark knows it by, without Java's stack."""


def stoppable(call: Callable[[DataFrame, int], None]) -> Callable[[DataFrame, int], None]:
    """Let a function for `foreachBatch` be interrupted, with an error that is short."""

    @wraps(call)
    def stopping(frame: DataFrame, epoch: int) -> None:
        try:
            call(frame, epoch)
        except Exception as error:
            told = next(filter(_is_interruption, _java_errors(error)), None)
            if told is None:
                raise
            raise InterruptedCall(told) from None

    return stopping


def _java_errors(error: BaseException | None) -> Iterator[str]:
    """Yield what Java told of an error and of those behind it, without its stacks."""
    while error is not None:
        if isinstance(error, Py4JJavaError):
            told = f"py4j.protocol.Py4JJavaError: {error}"
            yield "\n".join(line for line in told.splitlines() if not line.startswith(_STACK_FRAME))
        error = error.__cause__ or error.__context__


def _is_interruption(told: str) -> bool:
    return any(name in told for name in _INTERRUPTIONS)
