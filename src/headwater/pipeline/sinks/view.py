"""A view as a sink, exactly once: rows, change feed and epoch in one transaction of the view's store."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from headwater.pipeline.boundaries import boundary
from headwater.pipeline.sinks.checkpoint import is_new, settle
from headwater.pipeline.sinks.columns import DELETED, json_row, key_text, refuse_null
from headwater.pipeline.sinks.output_mode import upserting_mode
from headwater.pipeline.sinks.stopping import stoppable
from headwater.views import Change, ViewDefinition, ViewStore, open_store

__all__ = ["start_view"]


def start_view(
    df: DataFrame,
    *,
    store_url: str,
    view: str,
    key: Sequence[str],
    mode: str,
    query: str,
    checkpoint: str,
    ttl_ms: int | None = None,
    indexes: Sequence[str] = (),
    history_ms: int | None = None,
) -> StreamingQuery:
    """Start a query whose rows are a view's, by key; a later row replaces the one with its key.

    With `mode="changes"` a row whose `_deleted` is true deletes the one with its key. Without a key, as
    alerts are, every row stays.
    """
    changes = _changes(df, key=key, query=query, deletes=mode == "changes")
    store = open_store(store_url)
    if is_new(df.sparkSession, checkpoint) and store.epoch(query) >= 0:
        store.reset(query, view)  # before it is defined: only an empty view may get another key
    store.define(ViewDefinition(view, tuple(key), ttl_ms, tuple(indexes), history_ms))
    return (
        changes.writeStream.queryName(query)
        .foreachBatch(stoppable(Committer(store, view, query, checkpoint, keyed=bool(key)).commit))
        .outputMode(upserting_mode(df))
        .option("checkpointLocation", checkpoint)
        .start()
    )


def _changes(df: DataFrame, *, key: Sequence[str], query: str, deletes: bool) -> DataFrame:
    """Return the rows as a key and a JSON object, which is null for a delete."""
    row = json_row(df, without=(DELETED,) if deletes else (), nulls=True)
    if deletes and DELETED in df.columns:
        row = F.when(~F.coalesce(F.col(DELETED), F.lit(False)), row)
    if not key:
        return df.select(F.lit(None).cast("string").alias("key"), row.alias("row"))
    text = key_text(df, key)
    for column in key:
        text = refuse_null(df, column, query=query, text=text)
    return df.select(text.alias("key"), row.alias("row"))


class Committer:
    """The driver's part: one commit of the store for each epoch."""

    def __init__(self, store: ViewStore, view: str, query: str, checkpoint: str, *, keyed: bool) -> None:
        # Spark lets go of its callbacks some time after their query has ended, and tells nobody.
        weakref.finalize(self, store.close)
        self._store = store
        self._view = view
        self._query = query
        self._checkpoint = checkpoint
        self._keyed = keyed

    def commit(self, frame: DataFrame, epoch: int) -> None:
        """Commit an epoch, unless it was; Spark's `foreachBatch` calls this."""
        # A replayed epoch is computed like any other, for the watermark that comes of it.
        rows = frame.toArrow()
        keys = rows.column("key").to_pylist() if self._keyed else self._numbered(epoch, rows.num_rows)
        if not rows.num_rows:
            return
        settle(self._checkpoint, epoch)
        boundary("view.before_commit")
        self._store.commit(self._query, epoch, self._view, map(Change, keys, rows.column("row").to_pylist()))
        boundary("view.after_commit")

    def _numbered(self, epoch: int, count: int) -> Iterator[str]:
        return (f"{self._query}/{epoch}/{number}" for number in range(count))
