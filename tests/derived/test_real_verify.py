"""Postgres and MariaDB compared with their topics and stores: values of many types, and planted differences."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from headwater.testing.mariadb import RealMariaDB
from headwater.testing.postgres import RealPostgres
from headwater.testing.process import BrokerProcess
from needs import need

from .running import run, verified

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

POSTGRES = """
CREATE TABLE things (
    id bigint, part uuid, name text, price numeric(20,6), at timestamptz, day date, tags text[], doc jsonb, raw bytea,
    single real, PRIMARY KEY (id, part)
);
INSERT INTO things SELECT n, md5(n::text)::uuid, 'thing ' || n, n / 7.0, timestamptz '2026-01-01 00:00:00.123456+02'
    + n * interval '1 hour', date '2026-01-01' + n, ARRAY['a', NULL, n::text], jsonb_build_object('n', n, 'x', 1.50),
    decode(md5(n::text), 'hex'), n / 3.0 FROM generate_series(1, 5500) n;
"""
PLANTED = """
DELETE FROM things WHERE id = 5;
UPDATE things SET price = price + 0.000001 WHERE id = 7;
INSERT INTO things VALUES (9999, '00000000-0000-0000-0000-000000000001');
"""


@pytest.fixture(scope="module")
def postgres() -> Iterator[RealPostgres]:
    need("psql", "postgresql")
    with RealPostgres(settings={"wal_level": "logical", "fsync": "off"}) as running:
        yield running


def test_postgres(broker: BrokerProcess, postgres: RealPostgres, table: str, tmp_path: Path) -> None:
    url = postgres.database(table)
    app_file = tmp_path / "shop.py"
    app_file.write_text(
        f"""
from headwater import App

app = App("shop{table}")
app.table("{table}", key=["id", "part"], source="{url}#public.things")
app.cache("profiles", of="{table}")
app.index("words", of="{table}", text="name")
app.warehouse("files", of="{table}", every="0 seconds", engine="process")
"""
    )
    address, data = f"--broker=kafka://{broker.bootstrap}", f"--data={tmp_path}"
    with psycopg.connect(url, autocommit=True) as sql:
        sql.execute(POSTGRES.encode())
        run("capture", "run", app_file, address, "--once")
        run("derived", "run", app_file, address, data, "--once")
        compared: list[list[str | Path]] = [[app_file, address]]
        compared += [[app_file, address, data, "--store", store] for store in ("profiles", "words", "files")]
        for words in compared:
            [said] = verified(*words)
            assert (said["equal"], said["rows"]) == (True, 5500), said
        sql.execute(PLANTED.encode())
        for words in compared:
            [said] = verified(*words, status=1)
            assert [said[kind] for kind in ("rows", "missing", "extra", "different")] == [5500, 1, 1, 1]
            kinds = {each["key"].partition(",")[0]: each for each in said["first"]}
            assert {key: each["kind"] for key, each in kinds.items()} == {
                "5": "extra", "7": "different", "9999": "missing",
            }  # fmt: skip
            assert kinds["7"]["columns"] == {"price": ["1.000001", "1.000000"]}


def test_mariadb(broker: BrokerProcess, table: str) -> None:
    need("mariadbd", "mariadb-server")
    with RealMariaDB() as server:
        url = server.database(table)
        server.run(
            "CREATE TABLE things (id INT PRIMARY KEY, name VARCHAR(20), price DECIMAL(10,3), at DATETIME(6));"
            "INSERT INTO things SELECT seq, concat('thing ', seq), seq / 8, '2026-01-01 00:00:00.5'"
            " FROM seq_1_to_3000;",
            database=table,
        )
        address = f"--broker=kafka://{broker.bootstrap}"
        run("capture", "run", f"{url}#things", address, "--once")
        [said] = verified(f"{url}#things", address)
        assert (said["equal"], said["rows"]) == (True, 3000)
        server.run("UPDATE things SET name = NULL WHERE id = 2999", database=table)
        [said] = verified(f"{url}#things", address, status=1)
        assert said["first"] == [
            {"kind": "different", "key": "2999", "columns": {"name": [None, "thing 2999"]}}
        ]
