"""A warehouse: the rows of a table in Parquet files, for DuckDB, Spark, pandas and whatever else reads them.

    DIRECTORY/current               a link to the version that is live
    DIRECTORY/v-…/part-0003.parquet the rows of one bucket, by the hash of their keys, sorted by key
    DIRECTORY/v-…/_position.json    how far in its topic the version goes

A version is a directory that never changes. The next one is made beside it: parts that no change touches are the same
files under a second name (hard links), the others are merged with their changes. Then `current` is renamed to lead to
it, at once, with rows and position. Versions that were replaced stay for a minute, for whoever is reading them.

Where buckets grow beyond `_BUCKET_ROWS` there are twice as many: each is split in two.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.app.types import Array, DataType, Decimal, Field, Map, Scalar, Struct, text
from headwater.core.boundaries import boundary
from headwater.derived.change import Position, Row
from headwater.derived.columns import row_converter
from headwater.derived.errors import Behind, DerivedError, Switched, TryAgain
from headwater.derived.locking import locked, sync_directory
from headwater.derived.store import Prepared

__all__ = ["KEY", "Warehouse", "arrow_schema"]

KEY = "_key"
"""The column that rows are merged by: the text of the key."""

_CURRENT = "current"
_ABOUT = "_position.json"
_BUCKET_ROWS = 250_000
_KEEP_SECONDS = 60.0
_ABANDONED_SECONDS = 600.0
"""After this long, what a process was making when it was killed goes."""


@dataclass(frozen=True)
class _Version:
    path: Path
    position: Position
    rows: tuple[int, ...]
    """How many rows each bucket has."""


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
        link: str = _CURRENT,
        bucket_rows: int = _BUCKET_ROWS,
    ) -> None:
        try:
            import pyarrow as pa
            import pyarrow.compute as pc
            import pyarrow.parquet as pq
        except ModuleNotFoundError:
            raise DerivedError("pyarrow is not installed: pip install 'headwater[warehouse]'") from None
        self._pa, self._pc, self._pq = pa, pc, pq
        self.name, self.directory = name, directory
        self.gather_seconds = gather_seconds
        self.shape = text(columns)
        self.columns, self._link, self._bucket_rows = columns, link, bucket_rows
        self.schema: Any = arrow_schema(columns)
        self._convert = row_converter(columns)

    def position(self) -> Position | None:
        """Return how far the live version goes."""
        version = self._version()
        return None if version is None else version.position

    def take(self, row: Row) -> list[Any]:
        """Return the values of a row's columns."""
        return self._convert(row)

    def apply(self, changes: Prepared, base: Position | None, position: Position) -> None:
        """Make the next version, and have it be the live one."""
        version = self._version()
        if (None if version is None else version.position) != base:
            raise Switched(f"the warehouse {self.name} was moved on by another process")
        try:
            made = self._next(version, changes, position)
            boundary("derived.before_link")
            with locked(self.directory / "lock"):
                if self._version() != version:
                    shutil.rmtree(made)
                    raise Switched(f"the warehouse {self.name} was built anew")
                self._lead_to(made, version)
            self._clear()
        except OSError as error:
            raise TryAgain(f"the warehouse {self.name} was not written: {error}") from error

    def rows(self) -> Iterator[tuple[str, list[Any]]]:
        """Yield keys and values of the version that is live now."""
        version = self._version()
        if version is None:
            return
        with ExitStack() as opened:
            # All at once, for the version may be deleted before all of it is read.
            files = [
                opened.enter_context((version.path / _part(bucket)).open("rb"))
                for bucket in range(len(version.rows))
            ]
            for file in files:
                for batch in self._pq.ParquetFile(file).iter_batches(batch_size=4096):
                    columns = [column.to_pylist() for column in batch.columns]
                    for key, *values in zip(*columns, strict=True):
                        yield key, values

    def count(self) -> int:
        """Return how many rows there are."""
        version = self._version()
        return 0 if version is None else sum(version.rows)

    def beside(self) -> Warehouse:
        """Return an empty warehouse beside this one."""
        (self.directory / "building").unlink(missing_ok=True)
        return Warehouse(
            self.name, self.directory, self.columns, link="building", bucket_rows=self._bucket_rows
        )

    def switch(self, beside: Warehouse) -> None:
        """Have `current` lead to another warehouse's version."""
        with locked(self.directory / "lock"):
            live, built = self._version(), beside._version()
            if built is None or not built.position.may_replace(None if live is None else live.position):
                raise Behind(f"the warehouse {self.name} has moved on")
            (self.directory / beside._link).rename(self.directory / self._link)
            sync_directory(self.directory)
            if live is not None:
                os.utime(live.path)
        self._clear()

    def close(self) -> None:
        """Do nothing: no file stays open."""

    # Versions

    def _version(self) -> _Version | None:
        link = self.directory / self._link
        try:
            path = self.directory / link.readlink()
            said = json.loads((path / _ABOUT).read_text())
            return _Version(path, Position.decode(json.dumps(said["position"])), tuple(said["rows"]))
        except FileNotFoundError:
            if not link.is_symlink():
                return None
            raise DerivedError(
                f"{link} leads to files that are gone: delete {self.directory} and start again, and it is built anew"
            ) from None
        except (OSError, ValueError, KeyError) as error:
            raise DerivedError(
                f"the warehouse {self.directory} does not read ({error}): delete it and start again, and it is"
                " built anew"
            ) from error

    def _next(self, version: _Version | None, changes: Prepared, position: Position) -> Path:
        had = len(version.rows) if version is not None else 1
        buckets = had
        while (sum(version.rows if version is not None else ()) + len(changes)) > buckets * self._bucket_rows:
            buckets *= 2
        made = self.directory / f".new-{os.getpid()}-{time.time_ns()}"
        made.mkdir(parents=True)
        by_bucket: dict[int, list[tuple[str, Any]]] = {}
        for key, row in changes.items():
            by_bucket.setdefault(_bucket(key, buckets), []).append((key, row))
        old: tuple[int, Any] | None = None
        # Bucket b of the old ones is split into b, b + had, b + 2·had…, which are written one after the other.
        order = [bucket for first in range(had) for bucket in range(first, buckets, had)]
        counts: dict[int, int] = {}
        for bucket in order:
            changed = by_bucket.get(bucket, [])
            before = bucket % had
            if version is not None and buckets == had and not changed:
                os.link(version.path / _part(before), made / _part(bucket))
                counts[bucket] = version.rows[before]
                continue
            if old is None or old[0] != before:
                old = before, self._read(version, before)
            table = self._merged(self._own(old[1], bucket, buckets, had), changed)
            self._write(table, made / _part(bucket))
            counts[bucket] = table.num_rows
        rows = [counts[bucket] for bucket in range(buckets)]
        about = json.dumps({"position": json.loads(position.encode()), "rows": rows})
        with (made / _ABOUT).open("w") as file:
            file.write(about)
            file.flush()
            os.fsync(file.fileno())
        sync_directory(made)
        return made

    def _read(self, version: _Version | None, bucket: int) -> Any:
        if version is None:
            return self.schema.empty_table()
        return self._pq.read_table(version.path / _part(bucket), schema=self.schema)

    def _own(self, table: Any, bucket: int, buckets: int, had: int) -> Any:
        """Return the rows of a bucket, of those that were in one with others."""
        if buckets == had:
            return table
        keys = table.column(KEY).to_pylist()
        return table.filter(
            self._pa.array([_bucket(key, buckets) == bucket for key in keys], self._pa.bool_())
        )

    def _merged(self, table: Any, changed: list[tuple[str, Any]]) -> Any:
        if not changed:
            return table
        keys = self._pa.array([key for key, _ in changed], self._pa.string())
        kept = table.filter(self._pc.invert(self._pc.is_in(table.column(KEY), value_set=keys)))
        new = [[key, *values] for key, values in changed if values is not None]
        if new:
            columns = zip(*new, strict=True)
            arrays = [
                self._pa.array(list(column), field.type)
                for column, field in zip(columns, self.schema, strict=True)
            ]
            kept = self._pa.concat_tables([kept, self._pa.Table.from_arrays(arrays, schema=self.schema)])
        return kept.sort_by(KEY)

    def _write(self, table: Any, path: Path) -> None:
        with path.open("wb") as file:
            self._pq.write_table(table, file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())

    def _lead_to(self, made: Path, old: _Version | None) -> None:
        name = f"v-{time.time_ns()}"
        made.rename(self.directory / name)
        temporary = self.directory / f".{self._link}-{os.getpid()}"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(name)
        temporary.rename(self.directory / self._link)
        sync_directory(self.directory)
        if old is not None:
            os.utime(old.path)  # when it was replaced

    def _clear(self) -> None:
        """Delete versions that nothing leads to and that were replaced some time ago."""
        with locked(self.directory / "lock"):
            led_to = {str(path.readlink()) for path in self.directory.iterdir() if path.is_symlink()}
            now = time.time()
            for pattern, seconds in (("v-*", _KEEP_SECONDS), (".new-*", _ABANDONED_SECONDS)):
                for path in self.directory.glob(pattern):
                    if path.name not in led_to and now - path.stat().st_mtime > seconds:
                        shutil.rmtree(path, ignore_errors=True)


def arrow_schema(columns: Sequence[Field]) -> Any:
    """Return the columns of the files, the key first."""
    import pyarrow as pa

    fields = [pa.field(KEY, pa.string(), nullable=False)]
    return pa.schema([*fields, *(pa.field(column.name, _arrow(column.type)) for column in columns)])


def _arrow(kind: DataType) -> Any:
    import pyarrow as pa

    match kind:
        case Decimal(precision, scale):
            return pa.decimal128(precision, scale)
        case Array(element):
            return pa.list_(_arrow(element))
        case Map(key, element):
            return pa.map_(_arrow(key), _arrow(element))
        case Struct(fields):
            return pa.struct([pa.field(field.name, _arrow(field.type)) for field in fields])
        case Scalar(name):
            return {
                "boolean": pa.bool_(),
                "tinyint": pa.int8(),
                "smallint": pa.int16(),
                "int": pa.int32(),
                "bigint": pa.int64(),
                "float": pa.float32(),
                "double": pa.float64(),
                "string": pa.string(),
                "binary": pa.binary(),
                "date": pa.date32(),
                "timestamp": pa.timestamp("us", tz="UTC"),
                "timestamp_ntz": pa.timestamp("us"),
            }[name]
    raise TypeError(f"{kind} is no type of a column")


def _bucket(key: str, buckets: int) -> int:
    return zlib.crc32(key.encode()) % buckets


def _part(bucket: int) -> str:
    return f"part-{bucket:04}.parquet"
