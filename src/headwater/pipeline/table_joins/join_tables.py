"""`join_tables` on Spark: the stages of a maintained join, one after the other in one query.

Columns are plain values from the first stage to the last. Where a row cannot change its join key the first stage is
left out, and where no key of the result can come from two join keys the third; that one has no state, and goes over
the rows of a batch as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DataType, IntegerType, LongType, StructType

from headwater.pipeline.keyed.columns import plain, plain_type, restored
from headwater.pipeline.keyed.operator import Output, keyed
from headwater.pipeline.lookups.keys import On, TableError, refuse_missing
from headwater.pipeline.packing import Kept
from headwater.pipeline.sinks.columns import ABSENT
from headwater.pipeline.table_joins.join import TableJoin
from headwater.pipeline.table_joins.net import netted
from headwater.pipeline.table_joins.rekey import Rekey
from headwater.pipeline.table_joins.shape import LEFT, RIGHT, How, Shape, Side
from headwater.pipeline.tables import CHANGED_AT, DELETED, VERSION, Table
from headwater.pipeline.watermark import quoted

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["as_table", "join_tables"]

_SIDES: Final = (LEFT, RIGHT)
_PREFIX: Final = ("l", "r")


def join_tables(left: Table, right: Table, on: On, how: How = "inner") -> DataFrame:
    """Join two tables, and keep the result up to date at every change of either.

        join_tables(employees, departments, on={"department_id": "id"})

    The result has the columns of the left, then those of the right without the ones joined on, and `_deleted`: it is
    for a view or a stream with `mode="changes"`. Its key is the left's where every row of the left has one partner at
    most and `how` is not "full", else the keys of both.
    """
    _refuse_others(left, "left")
    _refuse_others(right, "right")
    shape = Shape.of(_side(left), _side(right), on, how)
    _refuse_types(left, right, shape)
    layout = _Layout((left, right), shape)
    joined = keyed(
        layout.routed(LEFT).unionByName(layout.routed(RIGHT)),
        [F.col(name) for name in layout.join_key],
        [(F.col(name), kind) for name, kind in layout.rows],
        None,
        TableJoin(shape),
        layout.results,
        kept=Kept(parts=(tuple(left.columns), tuple(right.columns))),
    )
    if shape.needs_net:
        places = [f"o{place}" for place in shape.key_places]
        joined = joined.repartition(*places).mapInArrow(_netting(places), joined.schema)
    return joined.select(*layout.restored(), F.col(DELETED))


def as_table(changes: DataFrame, key: str | Sequence[str], name: str = "the join") -> Table:
    """Return the result of `join_tables` as a table, to join it with another one in the same function.

        join_tables(as_table(join_tables(employees, departments, on="department"), key="id"), offices, on="office")

    `key` is the result's key; one that can be null, as in a full join, is none of a table.
    """
    keys = (key,) if isinstance(key, str) else tuple(key)
    if not isinstance(changes, DataFrame) or DELETED not in changes.columns:
        raise TableError("as_table takes the DataFrame that join_tables returned, with its column _deleted")
    refuse_missing(keys, changes.columns, "the result of join_tables")
    absent = [each.name for each in changes.schema.fields if each.name in keys and each.metadata.get(ABSENT)]
    if absent:
        raise TableError(f"{absent[0]} can be null in this join, so that it is no key of a table")
    # In a batch a key comes once, and batches come in their order: there is nothing for a version to tell apart.
    timed = changes.withColumns({CHANGED_AT: F.lit(None).cast("timestamp"), VERSION: F.lit(0).cast("long")})
    return Table(name, keys, timed)


class _Layout:
    """The columns on their way through the stages."""

    def __init__(self, tables: tuple[Table, Table], shape: Shape) -> None:
        self._tables = tables
        self._shape = shape
        self._columns = tuple(
            [(f"{prefix}{place}", _plain(_kind(table, name))) for place, name in enumerate(table.columns)]
            for prefix, table in zip(_PREFIX, tables, strict=True)
        )
        self.join_key = [f"j{place}" for place in range(len(shape.on))]
        self.rows: list[tuple[str, DataType]] = [
            ("side", IntegerType()),
            (DELETED, BooleanType()),
            (VERSION, LongType()),
            *self._columns[LEFT],
            *self._columns[RIGHT],
        ]
        """What the second stage gets, beside the join key."""
        right = tables[RIGHT].columns
        self._kinds = [_kind(tables[LEFT], name) for name in tables[LEFT].columns]
        self._kinds += [_kind(tables[RIGHT], right[place]) for place in shape.rest]
        self.results = [
            *[Output(f"o{place}", _plain(kind)) for place, kind in enumerate(self._kinds)],
            Output(DELETED, BooleanType()),
        ]

    def routed(self, side: int) -> DataFrame:
        """Return the changes of one side as the second stage takes them, each with its join key."""
        table, shape = self._tables[side], self._shape
        names = [name for name, _ in self._columns[side]]
        changes = table.changes.select(
            F.col(VERSION),
            F.coalesce(F.col(DELETED), F.lit(False)).alias(DELETED),
            *[
                plain(F.col(quoted(name)), _kind(table, name)).alias(alias)
                for name, alias in zip(table.columns, names, strict=True)
            ],
        )
        if shape.moves(side):
            places = shape.join_places[side]
            routed = keyed(
                changes,
                [F.col(names[place]) for place in shape.side(side).key_places],
                [(F.col(VERSION), LongType()), (F.col(DELETED), BooleanType()), *_named(self._columns[side])],
                None,
                Rekey(shape, side),
                [
                    *[
                        Output(alias, self._columns[side][place][1])
                        for alias, place in zip(self.join_key, places, strict=True)
                    ],
                    Output(DELETED, BooleanType()),
                    Output(VERSION, LongType()),
                    *[Output(name, kind) for name, kind in self._columns[side]],
                ],
                kept=Kept(parts=(tuple(table.columns),)),
            )
        else:
            keys = zip(self.join_key, shape.join_places[side], strict=True)
            routed = changes.select("*", *[F.col(names[place]).alias(alias) for alias, place in keys])
        others = self._columns[1 - side]
        return routed.select(
            *self.join_key,
            F.lit(side).alias("side"),
            DELETED,
            VERSION,
            *names,
            *[F.lit(None).cast(kind).alias(name) for name, kind in others],
        )

    def restored(self) -> list[Column]:
        """Return the columns of the result as they were in the tables."""
        absent = self._shape.absent
        return [
            restored(F.col(f"o{place}"), kind).alias(name, metadata={ABSENT: True} if name in absent else {})
            for place, (name, kind) in enumerate(zip(self._shape.columns, self._kinds, strict=True))
        ]


def _netting(key: Sequence[str]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return netted(batches, key, DELETED)

    return work


def _named(columns: Sequence[tuple[str, DataType]]) -> list[tuple[Column, DataType]]:
    return [(F.col(name), kind) for name, kind in columns]


def _side(table: Table) -> Side:
    return Side(table.name, tuple(table.columns), table.key)


def _kind(table: Table, name: str) -> DataType:
    return table.changes.schema[name].dataType


def _plain(kind: DataType) -> DataType:
    """Return the type that a column has on its way."""
    schema = StructType.fromDDL(f"v {plain_type(kind)}")
    assert isinstance(schema, StructType)
    return schema[0].dataType


def _refuse_others(given: object, side: str) -> None:
    """Refuse what is no table: Python would find out later, and say less."""
    if isinstance(given, Table):
        return
    what = "a DataFrame" if isinstance(given, DataFrame) else f"a {type(given).__name__}"
    raise TableError(
        f"the {side} side of join_tables is {what}, and has to be a table; declare it with app.table(…), "
        "or join streams with join_within"
    )


def _refuse_types(left: Table, right: Table, shape: Shape) -> None:
    """Refuse columns of different types: 1 and "1" would never meet."""
    for mine, theirs in shape.on:
        one, other = _kind(left, mine).simpleString(), _kind(right, theirs).simpleString()
        if one != other:
            raise TableError(
                f"{mine} of {left.name} is {one} and {theirs} of {right.name} is {other}; "
                "declare them with one type to join on them"
            )
