"""What DuckDB says about Parquet files."""

from __future__ import annotations

from typing import Any

import duckdb


def ask(query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    with duckdb.connect() as connection:
        return connection.execute(query).fetchall()
