"""`python -m bench.spark.handwritten`: views as they are written by hand, with Spark's connector and SQLite.

Prints a line that starts with `ready` once all queries run, and runs until it is ended.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import click
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from bench.spark.orders import EVENT_TIME, WINDOW
from bench.spark.peer import SparkConnector

# As durable as Headwater's views: WAL, and a commit that waits for the disk.
TABLE = """
PRAGMA journal_mode=WAL;
PRAGMA synchronous=FULL;
CREATE TABLE IF NOT EXISTS spending (
    window_start TEXT, user_id TEXT, total REAL, orders INTEGER, last_order TEXT, PRIMARY KEY (window_start, user_id)
) WITHOUT ROWID;
"""
UPSERT = "INSERT OR REPLACE INTO spending VALUES (?, ?, ?, ?, ?)"


class Table:
    """A view of one query, in a file of its own."""

    def __init__(self, file: Path) -> None:
        # Spark calls back from a thread of its own.
        self._connection = sqlite3.connect(file, check_same_thread=False)
        self._connection.executescript(TABLE)

    def upsert(self, rows: DataFrame, _epoch: int) -> None:
        """Write the rows of a batch; Spark's `foreachBatch` calls this."""
        with self._connection:
            self._connection.executemany(UPSERT, rows.collect())


@click.command(help=__doc__)
@click.option("--broker", "bootstrap", required=True, metavar="HOST:PORT")
@click.option("--scratch", required=True, type=click.Path(path_type=Path))
@click.option("--queries", default=1, show_default=True)
def main(bootstrap: str, scratch: Path, queries: int) -> None:
    side = SparkConnector(bootstrap, scratch)
    for number in range(queries):
        spending = (
            side.timed()
            .groupBy(F.window(EVENT_TIME, WINDOW).start.cast("string").alias("window_start"), "user_id")
            .agg(F.sum("amount"), F.count("*"), F.max("order_id"))
        )
        (
            spending.writeStream.foreachBatch(Table(scratch / f"views-{number}.db").upsert)
            .outputMode("update")
            .option("checkpointLocation", str(scratch / f"checkpoint-{number}"))
            .start()
        )
    click.echo("ready")
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main()
