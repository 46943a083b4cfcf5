"""Spark reads every schema as we read it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.app import SchemaError
from headwater.app.schema import (
    Array,
    DataType,
    Decimal,
    Field,
    Map,
    Scalar,
    Struct,
    parse,
    text,
)

from .schemas import schemas

pytestmark = pytest.mark.real

# A process of its own: the JVM that it starts has no session, and is in nobody's way.
SPARKS_PARSER = """
import json, sys
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
SparkContext._ensure_initialized()
types = SparkContext._jvm.org.apache.spark.sql.types
print("ready", flush=True)
for line in sys.stdin:
    try:
        answer = json.loads(types.StructType.fromDDL(json.loads(line)).json())
    except Py4JJavaError as error:
        answer = None
    print(json.dumps(answer), flush=True)
"""
JSON_NAMES = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}

Spark = Callable[[str], Any]


@pytest.fixture(scope="module")
def spark(java: str) -> Iterator[Spark]:
    """Spark's own parser: a schema's JSON, or None where it does not parse."""
    with subprocess.Popen(
        [sys.executable, "-c", SPARKS_PARSER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        given, answers = process.stdin, process.stdout
        assert answers.readline() == "ready\n"

        def ask(ddl: str) -> Any:
            given.write(json.dumps(ddl) + "\n")
            given.flush()
            return json.loads(answers.readline())

        yield ask
        given.close()


def as_spark(fields: tuple[Field, ...]) -> dict[str, Any]:
    return {"type": "struct", "fields": [_field(field) for field in fields]}


def _field(field: Field) -> dict[str, Any]:
    metadata = {} if field.comment is None else {"comment": field.comment}
    return {
        "name": field.name,
        "type": _type(field.type),
        "nullable": field.nullable,
        "metadata": metadata,
    }


def _type(type_: DataType) -> Any:
    match type_:
        case Scalar(name):
            return JSON_NAMES.get(name, name)
        case Decimal(precision, scale):
            return f"decimal({precision},{scale})"
        case Array(element):
            return {"type": "array", "elementType": _type(element), "containsNull": True}
        case Map(key, value):
            return {
                "type": "map",
                "keyType": _type(key),
                "valueType": _type(value),
                "valueContainsNull": True,
            }
        case Struct(fields):
            return as_spark(fields)


@settings(max_examples=300)
@given(fields=schemas)
def test_spark_reads_what_we_write(fields: tuple[Field, ...], spark: Spark) -> None:
    assert spark(text(fields)) == as_spark(fields)


WORDS = (
    *("a", "b", "`a b`", "timestamp", "int", "string", "decimal", "decimal(5,2)"),
    *("array<", "struct<", "map<", ">", ",", ":", "(", "not", "null", "comment", "'x'"),
)


@settings(max_examples=300)
@given(ddl=st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join))
def test_what_both_read_is_the_same(ddl: str, spark: Spark) -> None:
    try:
        fields = parse(ddl)
    except SchemaError:
        return
    assert spark(text(fields)) == as_spark(fields)
    assert spark(ddl) in (as_spark(fields), None)


@pytest.mark.parametrize(
    "ddl",
    [
        "order_id string, user_id string, card string, amount double, placed_at timestamp",
        "a string, b array<struct<c:int,d:decimal(10,2)>>, t timestamp",
        "a BYTE, b Short, c LONG, d REAL, e DEC(3), f NUMERIC, g INTEGER NOT NULL",
        "a string comment 'it\\'s', b string comment \"x, y\"",
        "`a b``c` map<string, struct<`d e` binary>>",
        "select int, from date, timestamp timestamp, array array<int>, not int",
        "a struct<>, b struct<c int>",
        "a timestamp_ntz, b timestamp_ltz, d boolean, e float",
    ],
)
def test_what_people_write_is_the_same_for_both(ddl: str, spark: Spark) -> None:
    assert spark(ddl) == as_spark(parse(ddl))


@pytest.mark.parametrize(
    "ddl",
    [
        "", "a", "a string,", "a strng", "a int b int", "a array<int", "a map<string>", "a decimal(39,2)",
        "a decimal(4,5)", "a int not", "order-id string", "`a int", "a int comment b",
    ],
)  # fmt: skip
def test_what_spark_refuses_is_refused(ddl: str, spark: Spark) -> None:
    # Spark makes a schema without columns of an empty text.
    assert spark(ddl) in (None, {"type": "struct", "fields": []})
    with pytest.raises(SchemaError):
        parse(ddl)
