"""Tables into topics, on Headwater's broker and on Kafka's."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.capture.captures import Capture, capture_of, start_over, statuses
from headwater.capture.change import Batch, Change, Column, Op, TableSchema
from headwater.capture.envelope import Encoder, Origin
from headwater.capture.publisher import Publisher
from headwater.capture.schemas import read_versions
from headwater.capture.source import CaptureError
from headwater.capture.topics import Naming
from headwater.client import Cluster
from headwater.core.urls import KafkaUrl

from .comparing import assert_same, envelopes, materialised, read
from .sqlite_model import make, table_rows

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

USERS = "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT, age INT)"
PAIRS = "CREATE TABLE pairs (a TEXT NOT NULL, b INT NOT NULL, c REAL, PRIMARY KEY (a, b)) WITHOUT ROWID"


def drain(capture: Capture, bootstrap: str) -> list[str]:
    said: list[str] = []
    capture.runner(KafkaUrl.parse(f"kafka://{bootstrap}"), say=said.append).run(until_end=True)
    return said


def test_a_snapshot_then_every_change(bootstrap: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    writer = make(path, USERS, PAIRS)
    writer.execute("BEGIN")
    writer.executemany("INSERT INTO users (name, age) VALUES (?, ?)", [(f"user {i}", i) for i in range(6000)])
    writer.execute("COMMIT")
    writer.execute("INSERT INTO pairs VALUES ('a', 1, 0.5), ('a', 2, NULL)")
    capture = capture_of([f"sqlite:///{path}#users,pairs"], name=name, partitions=2)
    drain(capture, bootstrap)
    writer.execute("UPDATE users SET age = age + 1 WHERE id <= 100")
    writer.execute("DELETE FROM users WHERE id > 5990")
    writer.execute("UPDATE pairs SET b = 3 WHERE b = 2")
    writer.execute("INSERT OR REPLACE INTO pairs VALUES ('a', 1, 1e9)")
    drain(capture, bootstrap)
    drain(capture, bootstrap)
    assert_same(table_rows(writer, path, "users"), ["id"], bootstrap, f"{name}.main.users")
    assert_same(table_rows(writer, path, "pairs"), ["a", "b"], bootstrap, f"{name}.main.pairs")
    # Each change once: 6,000 rows read, 100 updates, and 10 deletes with their tombstones.
    assert len(read(bootstrap, f"{name}.main.users")) == 6000 + 100 + 2 * 10
    ops = sorted(said["op"] for said in envelopes(bootstrap, f"{name}.main.pairs"))
    assert ops == ["c", "d", "r", "r", "u"]


def test_a_changed_table_is_written_down(bootstrap: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    writer = make(path, USERS, "INSERT INTO users VALUES (1, 'Ann', 30)")
    capture = capture_of([f"sqlite:///{path}#users"], name=name)
    drain(capture, bootstrap)
    writer.execute("ALTER TABLE users ADD COLUMN note TEXT DEFAULT 'new'")
    said = drain(capture, bootstrap)
    assert said == ["main.users: note string was added"]
    assert_same([{"id": 1, "name": "Ann", "age": 30, "note": "new"}], ["id"], bootstrap, f"{name}.main.users")
    cluster = Cluster(KafkaUrl.parse(f"kafka://{bootstrap}"))
    versions = [version for version in read_versions(cluster) if version.capture == name]
    status = statuses(cluster)[name]
    cluster.close()
    assert [(version.number, version.changes) for version in versions] == [
        (1, ()),
        (2, ("main.users: note string was added",)),
    ]
    assert status["topics"] == {"main.users": f"{name}.main.users"}
    assert status["position"]["tables"] == {"users": True}


def test_starting_over_leaves_nothing_behind(bootstrap: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    writer = make(path, USERS, "INSERT INTO users VALUES (1, 'Ann', 30), (2, 'Bea', 40)")
    capture = capture_of([f"sqlite:///{path}#users"], name=name)
    drain(capture, bootstrap)
    for statement in (
        "DROP TABLE users",  # and with it the triggers
        "CREATE TABLE users (name TEXT NOT NULL PRIMARY KEY, age INT)",
        "INSERT INTO users VALUES ('Cid', 50)",
    ):
        writer.execute(statement)
    with pytest.raises(CaptureError, match=f"gone.*headwater capture snapshot {name}"):
        drain(capture, bootstrap)
    url = KafkaUrl.parse(f"kafka://{bootstrap}")
    assert start_over(url, name) == [f"{name}.main.users"]
    assert materialised(read(bootstrap, f"{name}.main.users")) == {}
    drain(capture, bootstrap)
    assert_same([{"name": "Cid", "age": 50}], ["name"], bootstrap, f"{name}.main.users")
    with pytest.raises(CaptureError, match="knows no capture 'nothing'"):
        start_over(url, "nothing")


TABLE = TableSchema("public", "t", (Column("id", "bigint", "int8"), Column("x", "string", "text")), ("id",))


def publisher(bootstrap: str, name: str, *, flat: bool = False) -> Publisher:
    encoder = Encoder(Origin("postgresql", name, "db", "1"), flat={"t"} if flat else ())
    return Publisher(KafkaUrl.parse(f"kafka://{bootstrap}"), name, encoder, Naming(name))


def change(op: Op, number: int | None = None) -> Change:
    row = None if number is None else (b"%d" % number, b'"x"')
    return Change(op, TABLE, None, row, 1_700_000_000_000_000, "1", {})


@pytest.mark.parametrize("flat", [False, True])
def test_a_truncated_table_is_empty(bootstrap: str, name: str, flat: bool) -> None:
    topic = f"{name}.public.t"
    with publisher(bootstrap, name, flat=flat) as publishing:
        assert publishing.open([TABLE]) is None
        publishing.add(Batch([change("c", number) for number in range(5)], {"at": 1}))
        publishing.add(
            Batch([change("c", 5), change("t"), change("c", 2), change("t"), change("c", 7)], {"at": 2})
        )
        assert publishing.commit() == {"at": 2}
    records = read(bootstrap, topic)
    assert [row["id"] for row in materialised(records).values()] == [7]
    deletes = 0 if flat else 7
    assert len(records) == 8 + deletes + 7
    with publisher(bootstrap, name, flat=flat) as publishing:
        assert publishing.open([TABLE]) == {"at": 2}


def test_what_was_not_committed_is_not_there(bootstrap: str, name: str) -> None:
    with publisher(bootstrap, name) as publishing:
        publishing.open([TABLE])
        publishing.add(Batch([change("c", 1)], {"at": 1}))
        publishing.commit()
        publishing.add(Batch([change("c", 2)], {"at": 2}))
    with publisher(bootstrap, name) as publishing:
        assert publishing.open([TABLE]) == {"at": 1}
        publishing.add(Batch([change("c", 3)], {"at": 3}))
        publishing.commit()
    assert [row["id"] for row in materialised(read(bootstrap, f"{name}.public.t")).values()] == [1, 3]


def test_who_comes_later_shuts_out_who_was_there(bootstrap: str, name: str) -> None:
    with publisher(bootstrap, name) as first, publisher(bootstrap, name) as second:
        first.open([TABLE])
        first.add(Batch([change("c", 1)], {"at": 1}))
        assert second.open([TABLE]) is None
        with pytest.raises(CaptureError, match=f"another process captures '{name}' now"):
            first.commit()
        second.add(Batch([change("c", 2)], {"at": 2}))
        assert second.commit() == {"at": 2}
    assert [row["id"] for row in materialised(read(bootstrap, f"{name}.public.t")).values()] == [2]


def test_large_rows_are_taken_and_too_large_ones_named(bootstrap: str, name: str) -> None:
    with publisher(bootstrap, name) as publishing:
        publishing.open([TABLE])
        large = change("c", 1)._replace(after=(b"1", b'"%b"' % (b"x" * 3_000_000)))
        publishing.add(Batch([large], {"at": 1}))
        publishing.commit()
        too_large = change("c", 2)._replace(after=(b"2", b'"%b"' % (b"x" * 40_000_000)))
        with pytest.raises(
            CaptureError, match=r"larger than its topic takes: raise the topic's max\.message\.bytes"
        ):
            publishing.add(Batch([too_large], {"at": 2}))
    assert len(read(bootstrap, f"{name}.public.t")) == 1
