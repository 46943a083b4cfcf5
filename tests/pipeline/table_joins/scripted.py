"""Tables whose changes are written batch by batch, for queries on Spark."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headwater.pipeline.tables import Table

Change = Mapping[str, Any]


class ScriptedTable:
    """A table of batches, each in a file; a query reads one file of every table in a batch."""

    def __init__(self, directory: Path, name: str, columns: str, key: tuple[str, ...]) -> None:
        self._directory = directory / name
        self._directory.mkdir(parents=True)
        self._name, self._columns, self._key = name, columns, key
        self._files = 0
        self._version = 0

    def write(self, changes: Iterable[Change]) -> None:
        """Add a batch, with versions in the order of the changes."""
        path = self._directory / f"{self._files:06}.json"
        with path.open("w") as file:
            for change in changes:
                self._version += 1
                row = {"_deleted": False, "_version": self._version, **change}
                file.write(json.dumps(row) + "\n")
        os.utime(path, (self._files, self._files))  # Spark reads files in the order of their times
        self._files += 1

    def read(self, spark: SparkSession) -> Table:
        schema = f"{self._columns}, _deleted boolean, _changed_at timestamp, _version long"
        changes = spark.readStream.schema(schema).option("maxFilesPerTrigger", "1").json(str(self._directory))
        return Table(self._name, self._key, changes)


def drain(frame: DataFrame, checkpoint: Path) -> dict[int, list[dict[str, Any]]]:
    """Run a query to the end of what is there, and return the rows of each batch."""
    found: dict[int, list[dict[str, Any]]] = {}

    def keep(batch: DataFrame, epoch: int) -> None:
        found[epoch] = batch.toArrow().to_pylist()

    query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint)).start()
    try:
        query.processAllAvailable()
        return found
    finally:
        query.stop()
