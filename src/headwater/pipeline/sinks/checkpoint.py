"""Whether a checkpoint has been used: a sink's notes of epochs belong to one checkpoint."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

__all__ = ["is_new"]


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
