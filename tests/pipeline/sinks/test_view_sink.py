from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater.pipeline.sinks import start_view
from headwater.views import ViewError, ViewStore, open_store

from .conftest import Epochs

pytestmark = pytest.mark.real


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ViewStore]:
    with open_store(f"sqlite:///{tmp_path}/views.db") as found:
        yield found


def run(
    frame: DataFrame, directory: Path, *, key: tuple[str, ...] = ("id",), mode: str = "rows", view: str = "v"
) -> None:
    query = start_view(
        frame,
        store_url=f"sqlite:///{directory}/views.db",
        view=view,
        key=key,
        mode=mode,
        query="shop.v",
        checkpoint=str(directory / "checkpoint"),
    )
    try:
        query.processAllAvailable()
    finally:
        query.stop()


def rows(store: ViewStore, view: str = "v") -> dict[str, object]:
    return {row.key: json.loads(row.row) for row in store.rows(view)}


def test_a_later_row_replaces_the_one_with_its_key(epochs: Epochs, store: ViewStore, tmp_path: Path) -> None:
    epochs.add({"id": "a", "n": 1}, {"id": "b,c", "n": 2})
    epochs.add({"id": "a", "n": 3})
    run(epochs.read().select("id", "n"), tmp_path)
    assert rows(store) == {"a": {"id": "a", "n": 3}, "b,c": {"id": "b,c", "n": 2}}
    assert store.epoch("shop.v") == 1


def test_deletes_delete_and_are_no_column_of_the_rows(
    epochs: Epochs, store: ViewStore, tmp_path: Path
) -> None:
    epochs.add({"id": "a", "n": 1}, {"id": "b", "gone": False}, {"id": "never", "gone": True})
    epochs.add({"id": "a", "gone": True})
    run(epochs.read().select("id", "n", F.col("gone").alias("_deleted")), tmp_path, mode="changes")
    assert rows(store) == {"b": {"id": "b", "n": None}}
    assert [(change.key, change.row is None) for change in store.changes("v", 0)] == [
        ("a", False),
        ("b", False),
        ("a", True),
    ]


def test_an_aggregation_updates_its_rows_by_window_and_key(
    epochs: Epochs, store: ViewStore, tmp_path: Path
) -> None:
    epochs.add(
        {"id": "a", "n": 1, "at": "2026-01-01T00:00:10Z"}, {"id": "a", "n": 2, "at": "2026-01-01T00:00:50Z"}
    )
    epochs.add(
        {"id": "a", "n": 5, "at": "2026-01-01T00:00:20Z"}, {"id": "b", "n": 7, "at": "2026-01-01T00:01:00Z"}
    )
    minutes = epochs.read().groupBy(F.window("at", "1 minute"), "id").agg(F.sum("n").alias("n"))
    run(minutes, tmp_path, key=("window", "id"))
    assert {key: row["n"] for key, row in rows(store).items()} == {  # type: ignore[index]
        "2026-01-01T00:00:00.000Z,a": 8,
        "2026-01-01T00:01:00.000Z,b": 7,
    }


def test_an_epoch_that_spark_replays_changes_nothing(
    epochs: Epochs, store: ViewStore, tmp_path: Path
) -> None:
    epochs.add({"id": "a", "n": 1})
    run(epochs.read(), tmp_path)
    token = store.token("v")
    for file in (tmp_path / "checkpoint" / "commits").glob("*0*"):
        file.unlink()  # what a driver that died in time leaves
    run(epochs.read().withColumn("n", F.lit(99)), tmp_path)
    assert store.token("v") == token
    epochs.add({"id": "b", "n": 2})
    run(epochs.read(), tmp_path)
    assert sorted(rows(store)) == ["a", "b"]


def test_a_new_checkpoint_fills_the_view_anew(epochs: Epochs, store: ViewStore, tmp_path: Path) -> None:
    epochs.add({"id": "a", "n": 1})
    epochs.add({"id": "b", "n": 1})
    run(epochs.read(), tmp_path)
    shutil.rmtree(tmp_path / "checkpoint")
    run(epochs.read().where("id = 'b'"), tmp_path)
    assert sorted(rows(store)) == ["b"]


def test_a_new_checkpoint_may_come_with_another_key(epochs: Epochs, store: ViewStore, tmp_path: Path) -> None:
    epochs.add({"id": "a", "n": 1})
    run(epochs.read(), tmp_path)
    with pytest.raises(ViewError, match="holds rows by id, not by n"):
        run(epochs.read(), tmp_path, key=("n",))
    shutil.rmtree(tmp_path / "checkpoint")
    run(epochs.read(), tmp_path, key=("n",))
    assert sorted(rows(store)) == ["1"]


def test_an_epoch_without_rows_leaves_the_view_alone(
    epochs: Epochs, store: ViewStore, tmp_path: Path
) -> None:
    epochs.add({"id": "a", "n": 1})
    run(epochs.read().where("n > 5"), tmp_path)
    assert store.count("v") == store.token("v") == 0


def test_a_null_key_fails_the_query_with_its_name_and_the_column(
    epochs: Epochs, store: ViewStore, tmp_path: Path
) -> None:
    epochs.add({"id": "a", "n": 1}, {"n": 2})
    with pytest.raises(Exception, match=r"shop\.v: a row has no key, because id is null"):
        run(epochs.read(), tmp_path, key=("n", "id"))
    assert store.count("v") == 0


def test_rows_without_a_key_are_all_kept(epochs: Epochs, store: ViewStore, tmp_path: Path) -> None:
    epochs.add({"id": "a"}, {"id": "a"})
    epochs.add({"id": "a"})
    run(epochs.read().select("id"), tmp_path, key=(), view="!alert")
    assert sorted(rows(store, "!alert")) == ["shop.v/0/0", "shop.v/0/1", "shop.v/1/0"]
