"""`match` on a stream: predicates become bits in Spark, and the engine sees symbols, not expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, Final
from uuid import uuid4

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, LongType, StructType, TimestampType

from headwater.app.durations import milliseconds, text
from headwater.pipeline.keyed.columns import plain
from headwater.pipeline.keyed.operator import Output, arrival, keyed
from headwater.pipeline.packing import Kept
from headwater.pipeline.patterns.automaton import compile_pattern
from headwater.pipeline.patterns.conditions import needed_columns
from headwater.pipeline.patterns.engine import DEFAULT_LIMIT, DEFAULT_MEASURES, Match
from headwater.pipeline.patterns.errors import PatternError
from headwater.pipeline.watermark import event_time_of, quoted

__all__ = ["match"]

Definition = Column | str | tuple[Column, str]
"""When a symbol holds for a row: by itself, by what was matched before, or both."""

_DROPPED: Final = "dropped"


def match(
    df: DataFrame,
    by: str | Sequence[str],
    pattern: str,
    define: Mapping[str, Definition],
    within: str | None = None,
    measures: Mapping[str, str] | None = None,
    skip: str = "past last row",
    limit: int = DEFAULT_LIMIT,
) -> DataFrame:
    """Find a pattern in the events of each key, in the order of their times.

        match(orders, by="card", pattern="small{3,} large", within="10 minutes",
              define={"small": F.col("amount") < 2, "large": F.col("amount") > 500})

    The result has the columns of `by`, and then the measures: `start`, `end` and `rows` unless others are given.
    The language is described in docs/patterns.md.
    """
    time = event_time_of(df, "the stream of match")
    keys = [by] if isinstance(by, str) else list(by)
    _refuse_columns(df, keys)
    symbols = compile_pattern(pattern).symbols
    columns, texts = _defined(define, symbols)
    wanted = dict(measures or DEFAULT_MEASURES)
    needed = needed_columns(texts, wanted, symbols, tuple(df.columns))
    logic = Match(
        pattern,
        needed,
        conditions=texts,
        within=None if within is None else milliseconds(within) * 1000,
        measures=measures,
        skip=skip,
        limit=limit,
    )
    shipped = [_shipped(df, name) for name in needed]
    types = logic.types({name: kind.simpleString() for name, (_, kind) in zip(needed, shipped, strict=True)})
    rows = df.where(
        reduce(lambda one, other: one & other, [F.col(quoted(name)).isNotNull() for name in [*keys, time]])
    )
    outputs = [
        Output(_DROPPED, LongType(), made=True),
        *[Output(name, df.schema[name].dataType) for name in keys],
        *[Output(name, _type(kind), made=True) for name, kind in zip(logic.measures, types, strict=True)],
    ]
    found = keyed(
        rows,
        [plain(F.col(quoted(name)), df.schema[name].dataType) for name in keys],
        [
            (F.col(quoted(time)), TimestampType()),
            *arrival(df),
            (_mask(columns, symbols), LongType()),
            *shipped,
        ],
        F.col(quoted(time)),
        logic,
        outputs,
        kept=Kept(
            _layout(pattern, texts, skip),
            f"match by {', '.join(keys)} with {', '.join(needed) or 'nothing'}"
            + ("" if within is None else f" within {text(milliseconds(within))}"),
        ),
    )
    # How many partial matches were given up at the limit is told in the query's progress, and is no match.
    counted = found.observe(f"headwater_match.{uuid4().hex}", F.sum(_DROPPED).alias(_DROPPED))
    return counted.where(F.col(_DROPPED) == 0).drop(_DROPPED)


def _layout(pattern: str, conditions: Mapping[str, str], skip: str) -> str:
    """Return what partial matches are partial matches of: they are kept by places in the pattern."""
    where = [f"{symbol} where {text}" for symbol, text in sorted(conditions.items())]
    return ", ".join([f"matches of {' '.join(pattern.split())}", *where, f"skip {' '.join(skip.split())}"])


def _refuse_columns(df: DataFrame, keys: list[str]) -> None:
    missing = [key for key in keys if key not in df.columns]
    if missing or not keys:
        raise PatternError(
            f"match by {', '.join(missing) or 'nothing'}; the columns are {', '.join(df.columns)}"
        )


def _defined(
    define: Mapping[str, Definition], symbols: tuple[str, ...]
) -> tuple[dict[str, Column], dict[str, str]]:
    """Return what Spark decides of each symbol, and what the engine does."""
    columns: dict[str, Column] = {}
    texts: dict[str, str] = {}
    for symbol, given in define.items():
        if symbol not in symbols:
            raise PatternError(
                f"define= has {symbol}, which is not in the pattern; it has {', '.join(symbols)}"
            )
        parts: tuple[Any, ...] = given if isinstance(given, tuple) else (given,)
        for part in parts:
            if isinstance(part, str):
                texts[symbol] = part
            elif isinstance(part, Column):
                columns[symbol] = part
            else:
                raise PatternError(
                    f'define= gives {part!r} for {symbol}; give a column, as in F.col("amount") < 2, or a text'
                )
    return columns, texts


def _mask(columns: Mapping[str, Column], symbols: tuple[str, ...]) -> Column:
    bits = [
        F.when(F.coalesce(columns[symbol], F.lit(False)), F.lit(1 << place)).otherwise(F.lit(0))
        if symbol in columns
        else F.lit(1 << place)
        for place, symbol in enumerate(symbols)
    ]
    return reduce(lambda one, other: one.bitwiseOR(other), [bit.cast("bigint") for bit in bits])


def _shipped(df: DataFrame, name: str) -> tuple[Column, DataType]:
    """Return a column as the engine gets it; decimals are worked with as doubles."""
    column, kind = F.col(quoted(name)), df.schema[name].dataType
    if isinstance(kind, DecimalType):
        column = column.cast("double")
        kind = _type("double")
    return column, kind


def _type(name: str) -> DataType:
    schema = StructType.fromDDL(f"v {name}")
    assert isinstance(schema, StructType)
    return schema[0].dataType
