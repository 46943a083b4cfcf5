"""Which of Spark's output modes a query takes."""

from __future__ import annotations

from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

__all__ = ["upserting_mode"]


def upserting_mode(frame: DataFrame) -> str:
    """Return `update` where results change while events come in, and `append` otherwise.

    Results change in a streaming aggregation, which the analyzed plan shows. Whether Spark can emit the
    changes is asked of Spark's own check: it cannot over an outer join of streams, for example, and
    then a row comes when it is final.
    """
    java: Any = frame
    plan = java._jdf.queryExecution().analyzed()
    if not _aggregates(plan):
        return "append"
    jvm: Any = frame.sparkSession.sparkContext._jvm
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(plan, jvm.org.apache.spark.sql.streaming.OutputMode.Update())
    except AnalysisException:
        return "append"
    return "update"


def _aggregates(plan: Any) -> bool:
    if plan.nodeName() == "Aggregate" and plan.isStreaming():
        return True
    children = plan.children()
    return any(_aggregates(children.apply(place)) for place in range(children.size()))
