"""The same declaration on Spark's own Kafka connector (`source="jvm"`).

For clusters with an authentication that we do not speak. What differs: the watermark is Spark's, the highest
event time of all partitions minus the lateness, so a partition that lags loses what comes late; late events are
dropped by Spark's operators; JSON is read by `from_json`; the group's offsets are not committed.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf
from pyspark.sql.types import StringType, StructField, StructType

from headwater.client.dead_letters import letter, send_letters
from headwater.pipeline.source.errors import SourceError
from headwater.pipeline.source.reading import cluster_of
from headwater.pipeline.source.spec import TopicSource
from headwater.record.records import Record

__all__ = ["JARS", "read_with_connector"]

JARS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.1",
)
"""What `spark.jars` must name."""

_CORRUPT = "_corrupt"
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def read_with_connector(spark: SparkSession, source: TopicSource, schema: StructType) -> DataFrame:
    """Return the rows of a topic as Spark's connector reads them."""
    _check(spark, source)
    rows = spark.readStream.format("kafka").options(**_options(source)).load()
    beside = [_beside(name) for name in source.metadata]
    if source.format == "raw":
        found = rows.select(*[field.name for field in schema], *beside)
    else:
        found = _parsed(rows, source, schema, beside)
    if source.event_time is not None:
        found = found.withWatermark(source.event_time, f"{source.lateness_ms} milliseconds")
    return found


def _check(spark: SparkSession, source: TopicSource) -> None:
    named = ",".join(spark.conf.get(name, None) or "" for name in ("spark.jars", "spark.jars.packages"))
    missing = [jar for jar in JARS if jar.split(":")[1] not in named]
    if missing:
        raise SourceError(
            f'topic {source.topic} is declared with source="jvm", which needs jars that spark.jars does not name: '
            f"{', '.join(missing)}"
        )
    if source.format not in ("json", "raw"):
        raise SourceError(f'topic {source.topic}: source="jvm" reads json and raw, not {source.format}')
    if source.late != "drop":
        raise SourceError(
            f'topic {source.topic}: with source="jvm" late events are dropped; '
            f'late="{source.late}" needs source="arrow"'
        )
    if source.ahead_ms is not None:
        raise SourceError(f'topic {source.topic}: ahead= needs source="arrow"')


def _options(source: TopicSource) -> dict[str, str]:
    url = source.url
    found = {
        "subscribe": source.topic,
        "failOnDataLoss": str(source.lost == "fail").lower(),
        "includeHeaders": str("_headers" in source.metadata).lower(),
        "kafka.bootstrap.servers": url.bootstrap,
        "kafka.isolation.level": "read_committed",
    }
    if source.offsets:
        begin = {str(partition): offset for partition, offset in source.offsets}
        found["startingOffsets"] = json.dumps({source.topic: begin})
    elif source.start in ("earliest", "latest"):
        found["startingOffsets"] = source.start
    else:
        found["startingTimestamp"] = str(int(datetime.fromisoformat(source.start).timestamp() * 1000))
        found["startingOffsetsByTimestampStrategy"] = "latest"
    if source.max_rows is not None:
        found["maxOffsetsPerTrigger"] = str(source.max_rows)
    if "security.protocol" in url.properties():
        found["kafka.security.protocol"] = url.properties()["security.protocol"]
    if url.user is not None and url.mechanism is not None:
        user, password = _quoted(url.user), _quoted(url.password or "")
        found["kafka.sasl.mechanism"] = url.mechanism
        found["kafka.sasl.jaas.config"] = (
            f"{_MODULES[url.mechanism]} required username={user} password={password};"
        )
    if url.ca is not None:
        found |= {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": url.ca}
    if url.cert is not None:
        raise SourceError(
            'a client certificate is not supported with source="jvm": use a user and a password'
        )
    return found


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _beside(name: str) -> Column:
    if name == "_headers":
        # Spark's have the name `key`.
        headers = F.coalesce(F.col("headers"), F.array())
        return F.transform(
            headers, lambda each: F.struct(each["key"].alias("name"), each["value"].alias("value"))
        ).alias(name)
    return F.col(name.removeprefix("_")).alias(name)


def _parsed(rows: DataFrame, source: TopicSource, schema: StructType, beside: list[Column]) -> DataFrame:
    """Read JSON values; those that do not read go to the dead-letter topic and no further."""
    with_corrupt = StructType([*schema, StructField(_CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    value = F.from_json(F.col("value").cast("string"), with_corrupt, options)
    origin = F.struct("topic", "partition", "offset", "timestamp", "key", "value")
    malformed = F.when(F.col(f"parsed.{_CORRUPT}").isNotNull(), origin)
    read = rows.where("value is not null").withColumn("parsed", value)
    kept = read.where(_bury(source)(malformed))
    return kept.select("parsed.*", *beside).drop(_CORRUPT)


def _bury(source: TopicSource) -> Any:
    """Return the function that takes malformed records, null for the others, and tells which rows stay."""

    def bury(malformed: pa.Array) -> pa.Array:
        found = malformed.filter(malformed.is_valid()).to_pylist()
        if found and source.dead_letters is None:
            where = f"{source.topic}-{found[0]['partition']}: the record at offset {found[0]['offset']}"
            raise SourceError(f"{where} is malformed, and no dead-letter topic is declared to take it")
        if found and source.dead_letters is not None:
            send_letters(cluster_of(source), source.dead_letters, [_letter(each) for each in found])
        return malformed.is_null()

    # Not deterministic, so that Spark calls it once for each record and moves nothing past it.
    made: Any = arrow_udf(bury, "boolean", ArrowUDFType.SCALAR)
    return made.asNondeterministic()


def _letter(row: dict[str, Any]) -> Record:
    return letter(
        "does not fit the declared schema",
        row["topic"],
        row["partition"],
        row["offset"],
        int(row["timestamp"].timestamp() * 1000),
        row["key"],
        row["value"],
    )
