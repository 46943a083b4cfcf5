"""One topic read by both sources, in a session that has the jars of Spark's connector.

It is started with the address of a broker and a directory, and prints what each source gave as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater.pipeline.session import SessionOptions, open_session
from headwater.pipeline.source import TopicSource, read_stream, register
from headwater.pipeline.windows import tumbling
from headwater.testing.jars import SPARK_CONNECTOR

SCHEMA = "id bigint, name string, at timestamp, tags array<string>"
METADATA = ("_key", "_partition", "_offset", "_timestamp", "_headers")


def drained(frame: DataFrame, checkpoint: Path) -> list[str]:
    rows: list[str] = []
    query = (
        frame.writeStream.foreachBatch(lambda batch, _: rows.extend(map(str, batch.toJSON().collect())))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sorted(rows)


def main(broker: str, directory: Path) -> dict[str, Any]:
    jars = ",".join(str(jar) for jar in sorted(SPARK_CONNECTOR.fetch().glob("*.jar")))
    options = SessionOptions("connector", directory / "spark", "local[2]", settings={"spark.jars": jars})
    spark = open_session(options)
    register(spark)
    found = {}
    for kind in ("arrow", "jvm"):
        rows = TopicSource(
            broker, "people", SCHEMA, metadata=METADATA, dead_letters=f"dead.{kind}", source=kind
        )
        timed = TopicSource(
            broker,
            "people",
            SCHEMA,
            event_time="at",
            lateness_ms=1000,
            dead_letters=f"dead.{kind}",
            source=kind,
        )
        windows = read_stream(spark, timed).transform(tumbling("at", "10 seconds")).groupBy("window")
        found[kind] = {
            "rows": drained(read_stream(spark, rows), directory / f"{kind}-rows"),
            "windows": drained(windows.agg(F.count("*").alias("n")), directory / f"{kind}-windows"),
        }
    spark.stop()
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1], Path(sys.argv[2]))) + "\n")
