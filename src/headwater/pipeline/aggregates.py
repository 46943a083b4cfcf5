"""Aggregates as operators of ours are told them: `count(*)`, or `sum(amount)` and the like."""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple, cast

from pyspark.sql import DataFrame

from headwater.pipeline.watermark import TimeError

__all__ = ["Call", "Kind"]

Kind = Literal["count", "sum", "mean", "min", "max"]

_CALL: Final = re.compile(r"\s*(count|sum|mean|min|max)\s*\(\s*(\*|.+?)\s*\)\s*")


class Call(NamedTuple):
    """A function of the values of a column, or of the rows where there is none."""

    function: Kind
    column: str | None

    @staticmethod
    def read(df: DataFrame, name: str, text: str) -> Call:
        """Read what a user wrote for the column `name` of a result."""
        call = _CALL.fullmatch(text)
        if call is None or (call[2] == "*" and call[1] != "count"):
            raise TimeError(
                f"{name}={text!r} is no aggregate; use count(*), or count, sum, mean, min or max of a column"
            )
        if call[2] == "*":
            return Call("count", None)
        if call[2] not in df.columns:
            raise TimeError(
                f"{name}={text!r}: there is no column {call[2]!r}; the columns are {', '.join(df.columns)}"
            )
        return Call(cast("Kind", call[1]), call[2])
