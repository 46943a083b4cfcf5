"""A warehouse: the rows of a table in Parquet files, for DuckDB, Spark, pandas and whatever else reads them.

`versions` tells how the files lie, `parts` how one of them is merged with its changes. Here is the store that merges
them in its own process; `headwater.pipeline.sinks.warehouse` has the tasks of a Spark query do it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from headwater.app.types import Field, text
from headwater.derived.change import Position, Row
from headwater.derived.columns import row_converter
from headwater.derived.errors import DerivedError, Switched, TryAgain
from headwater.derived.parts import (
    BUCKET_ROWS,
    KEY,
    arrow_schema,
    bucket_of,
    buckets_for,
    merge,
    part_name,
    read_bucket,
    write_part,
)
from headwater.derived.store import Prepared
from headwater.derived.versions import CURRENT, Version, Versions

__all__ = ["KEY", "Warehouse"]


class Warehouse:
    """Parquet files of one table, for whoever writes them."""

    gather_changes = 200_000

    def __init__(
        self,
        name: str,
        directory: Path,
        columns: Sequence[Field],
        *,
        gather_seconds: float = 10.0,
        link: str = CURRENT,
        bucket_rows: int = BUCKET_ROWS,
    ) -> None:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ModuleNotFoundError:
            raise DerivedError("pyarrow is not installed: pip install 'headwater[warehouse]'") from None
        self._pa, self._pq = pa, pq
        self.name, self.directory = name, directory
        self.gather_seconds = gather_seconds
        self.shape = text(columns)
        self.columns, self.bucket_rows = columns, bucket_rows
        self.versions = Versions(name, directory, link)
        self.schema: Any = arrow_schema(columns)
        self._convert = row_converter(columns)

    def position(self) -> Position | None:
        """Return how far the live version goes."""
        version = self.versions.live()
        return None if version is None else version.position

    def take(self, row: Row) -> list[Any]:
        """Return the values of a row's columns."""
        return self._convert(row)

    def apply(self, changes: Prepared, base: Position | None, position: Position) -> None:
        """Make the next version, and have it be the live one."""
        version = self.versions.live()
        if (None if version is None else version.position) != base:
            raise Switched(f"the warehouse {self.name} was moved on by another process")
        try:
            with self.versions.making() as made:
                buckets, counts = self._merge(version, changes, made)
                self.versions.finish(made, version, buckets=buckets, counts=counts, position=position)
        except OSError as error:
            raise TryAgain(f"the warehouse {self.name} was not written: {error}") from error

    def rows(self) -> Iterator[tuple[str, list[Any]]]:
        """Yield keys and values of the version that is live now."""
        version = self.versions.live()
        if version is None:
            return
        with ExitStack() as opened:
            # All at once, for the version may be deleted before all of it is read.
            files = [
                opened.enter_context((version.path / part_name(bucket)).open("rb"))
                for bucket in range(len(version.rows))
            ]
            for file in files:
                for batch in self._pq.ParquetFile(file).iter_batches(batch_size=4096):
                    columns = [column.to_pylist() for column in batch.columns]
                    for key, *values in zip(*columns, strict=True):
                        yield key, values

    def count(self) -> int:
        """Return how many rows there are."""
        version = self.versions.live()
        return 0 if version is None else sum(version.rows)

    def beside(self) -> Warehouse:
        """Return an empty warehouse beside this one."""
        other = Warehouse(
            self.name, self.directory, self.columns, link="building", bucket_rows=self.bucket_rows
        )
        other.versions.forget()
        return other

    def switch(self, beside: Warehouse) -> None:
        """Have `current` lead to another warehouse's version."""
        self.versions.switch(beside.versions)

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _merge(self, version: Version | None, changes: Prepared, made: Path) -> tuple[int, dict[int, int]]:
        """Write the parts that change; return how many buckets there are, and the rows of those written."""
        rows = () if version is None else version.rows
        had = len(rows) or 1
        buckets = buckets_for(sum(rows) + len(changes), had, self.bucket_rows)
        by_bucket: dict[int, list[tuple[str, Any]]] = {}
        for key, row in changes.items():
            by_bucket.setdefault(bucket_of(key, buckets), []).append((key, row))
        stays = version is not None and buckets == had
        counts: dict[int, int] = {}
        for bucket in by_bucket if stays else range(buckets):
            path = None if version is None else version.path
            table = read_bucket(path, bucket, buckets, had, self.schema)
            if changed := by_bucket.get(bucket):
                gone = self._pa.array([key for key, row in changed if row is None], self._pa.string())
                table = merge(table, self._table(changed), gone)
            write_part(table, made / part_name(bucket))
            counts[bucket] = table.num_rows
        return buckets, counts

    def _table(self, changed: list[tuple[str, Any]]) -> Any:
        rows = [[key, *values] for key, values in changed if values is not None]
        if not rows:
            return self.schema.empty_table()
        arrays = [
            self._pa.array(list(column), field.type)
            for column, field in zip(zip(*rows, strict=True), self.schema, strict=True)
        ]
        return self._pa.Table.from_arrays(arrays, schema=self.schema)
