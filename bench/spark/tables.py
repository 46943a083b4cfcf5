"""`python -m bench.spark.tables SIDE`: employees and departments joined, and the join kept up to date.

Prints one line of JSON with what was measured.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench.figures import HEADWATER, SPARK
from bench.process import tree_cpu_seconds, tree_resident_megabytes
from bench.spark import handwritten_join
from bench.spark.child import MASTER
from bench.spark.staff import CHANGE, DEPARTMENTS, EMPLOYEES, Staff
from headwater import join_tables
from headwater.pipeline.session import SessionOptions, open_session
from headwater.pipeline.tables import Table

ROUNDS = 3


@click.command(help=__doc__)
@click.argument("side", type=click.Choice([HEADWATER, SPARK]))
@click.option("--large", required=True, type=int, help="Employees of the large department.")
@click.option("--departments", required=True, type=int, help="Small departments, with ten employees each.")
@click.option("--changes", required=True, type=int, help="Changes of one employee each in a batch.")
@click.option("--scratch", required=True, type=click.Path(path_type=Path))
def main(side: str, large: int, departments: int, changes: int, scratch: Path) -> None:
    spark = open_session(SessionOptions("bench", scratch / "spark", MASTER))
    staff = Staff(scratch / "tables", large, departments)
    loaded = staff.load()
    query = _started(spark, side, scratch)
    try:
        load = loaded / _seconds(query)
        _rate(query, lambda: staff.change(changes))  # the first compiles
        cpu = tree_cpu_seconds(os.getpid())
        single = [_rate(query, lambda: staff.change(changes)) for _ in range(ROUNDS)]
        cpu = tree_cpu_seconds(os.getpid()) - cpu
        rename_cpu = tree_cpu_seconds(os.getpid())
        renames = [_rate(query, staff.rename) for _ in range(ROUNDS)]
        rename_cpu = tree_cpu_seconds(os.getpid()) - rename_cpu
        measured = {
            "join-tables": max(single),
            "join-tables-cpu": cpu / (ROUNDS * changes) * 1e3,
            "join-tables-rename": max(renames),
            "join-tables-rename-cpu": rename_cpu / ROUNDS,
            "join-tables-load": load,
            "join-tables-memory": tree_resident_megabytes(os.getpid()),
        }
    finally:
        query.stop()
        spark.stop()
    click.echo(json.dumps(measured))


def _started(spark: SparkSession, side: str, scratch: Path) -> StreamingQuery:
    employees = _changes(spark, scratch, "employees", EMPLOYEES)
    departments = _changes(spark, scratch, "departments", DEPARTMENTS)
    if side == HEADWATER:
        joined = join_tables(
            Table("employees", ("employee",), employees.drop("was")),
            Table("departments", ("id",), departments),
            {"department": "id"},
        )
    else:
        joined = handwritten_join.join(employees, departments)
    return joined.writeStream.format("noop").option("checkpointLocation", str(scratch / "checkpoint")).start()


def _changes(spark: SparkSession, scratch: Path, name: str, columns: str) -> DataFrame:
    reader = spark.readStream.schema(f"{columns}, {CHANGE}").option("maxFilesPerTrigger", "1")
    return reader.parquet(str(scratch / "tables" / name))


def _rate(query: StreamingQuery, write: Callable[[], int]) -> float:
    """Write a batch, and return how many changes of the join it made a second."""
    count = write()
    return count / _seconds(query)


def _seconds(query: StreamingQuery) -> float:
    """Have everything read that is there, and return how long the batches of it took."""
    before = query.lastProgress.batchId if query.lastProgress else -1
    query.processAllAvailable()
    new = [each for each in query.recentProgress if each.batchId > before and each.numInputRows]
    return sum(each.durationMs["triggerExecution"] for each in new) / 1e3


if __name__ == "__main__":
    main()
