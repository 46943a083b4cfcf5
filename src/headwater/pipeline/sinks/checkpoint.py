"""A query's checkpoint as its sink sees it: the notes of epochs that a sink keeps belong to one checkpoint."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

__all__ = ["is_new", "settle"]


def is_new(spark: SparkSession, checkpoint: str) -> bool:
    """Tell whether a query that starts here starts with epoch 0.

    Then whatever epochs a sink has noted for the query are those of another checkpoint, and the sink has to
    forget them before the first epoch is planned.
    """
    java: Any = spark
    path = java.sparkContext._jvm.org.apache.hadoop.fs.Path(checkpoint, "offsets")
    files = path.getFileSystem(java._jsparkSession.sessionState().newHadoopConf())
    if not files.exists(path):
        return True
    return not any(status.getPath().getName().isdigit() for status in files.listStatus(path))


def settle(checkpoint: str, epoch: int) -> None:
    """Put the plan of an epoch on stable storage, before its sink does so with the result.

    Spark leaves it to the operating system. After a power loss it might plan the epoch anew, with more records
    than before, and the sink would skip it as done. A checkpoint that is not on a local file system is left to
    that one.
    """
    plan = Path(checkpoint.removeprefix("file://"), "offsets", str(epoch))
    for path in (plan, plan.parent):
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
