"""Arrow values: an IPC stream each, whose rows are all rows of the topic."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headwater.pipeline.source.decoded import Decoded, Malformed, empty
from headwater.pipeline.source.opened import Records

__all__ = ["ArrowDecoder"]


class ArrowDecoder:
    """Reads values that are Arrow streams; columns go by name, and a value that misses one has nulls there."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def decode(self, records: Records) -> Decoded:
        """Return all rows of each record that is not null and not malformed."""
        tables: list[pa.Table] = []
        rows: list[int] = []
        dead: list[tuple[int, str]] = []
        for row in range(len(records)):
            value = records.value(row)
            if value is None:
                continue
            try:
                tables.append(self._table(value))
                rows.append(row)
            except Malformed as error:
                dead.append((row, str(error)))
        if not tables:
            return Decoded(empty(self._schema), np.zeros(0, np.intp), dead)
        merged = pa.concat_tables(tables).combine_chunks()
        columns = [
            column.chunk(0) if column.num_chunks else pa.array([], column.type) for column in merged.columns
        ]
        counts = [table.num_rows for table in tables]
        return Decoded(columns, np.repeat(np.array(rows, np.intp), counts), dead)

    def _table(self, value: bytes) -> pa.Table:
        try:
            with pa.ipc.open_stream(value) as stream:
                table = stream.read_all()
            table.validate(full=True)  # what is handed on is read by the JVM without a look
            columns = [
                table.column(field.name).cast(field.type)
                if field.name in table.column_names
                else pa.chunked_array([pa.nulls(table.num_rows, field.type)])
                for field in self._schema
            ]
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            raise Malformed(f"not an Arrow stream of the declared columns: {error}") from None
        return pa.Table.from_arrays(columns, schema=self._schema)
