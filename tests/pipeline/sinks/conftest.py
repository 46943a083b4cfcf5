"""Rows that a query reads file by file: each file is an epoch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headwater.testing.process import BrokerProcess


class Epochs:
    """Files of rows, and the stream that reads them one at a time."""

    def __init__(self, spark: SparkSession, directory: Path, schema: str) -> None:
        self._spark = spark
        self._directory = directory
        self._schema = schema
        self._count = 0
        directory.mkdir()

    def add(self, *rows: dict[str, Any]) -> None:
        hidden = self._directory / ".rows"
        hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
        hidden.rename(self._directory / f"{self._count:06}.json")
        self._count += 1

    def read(self) -> DataFrame:
        reader = self._spark.readStream.schema(self._schema).option("maxFilesPerTrigger", 1)
        return reader.json(str(self._directory))


@pytest.fixture
def epochs(spark: SparkSession, tmp_path: Path) -> Epochs:
    return Epochs(spark, tmp_path / "rows", "id string, n long, at timestamp, gone boolean")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("sinks") / "broker") as running:
        yield running
