"""`headwater capture`, as it is called."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from headwater.testing.process import BrokerProcess, free_port, terminate

from .comparing import assert_same, read
from .sqlite_model import make

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

HEADWATER = str(Path(sys.executable).with_name("headwater"))


@pytest.fixture
def environment(headwater_broker: BrokerProcess) -> dict[str, str]:
    return {**os.environ, "HEADWATER_BROKER": f"kafka://{headwater_broker.bootstrap}"}


def run(environment: dict[str, str], *words: str, directory: Path, status: int = 0) -> str:
    done = subprocess.run(
        [HEADWATER, "capture", *words],
        capture_output=True,
        text=True,
        env=environment,
        cwd=directory,
        timeout=60,
    )
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stderr


def test_an_application_names_the_topics(
    headwater_broker: BrokerProcess, environment: dict[str, str], name: str, tmp_path: Path
) -> None:
    app = name.replace("-", "_")
    make(tmp_path / "shop.db", "CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT)").executescript(
        "INSERT INTO people VALUES (1, 'Ann')"
    )
    (tmp_path / "shop.py").write_text(
        "from headwater import App\n"
        f"app = App('{app}')\n"
        f"app.table('{app}_users', key='id', source='sqlite:///shop.db#people', envelope='flat')\n"
        f"@app.view(key='id')\ndef known({app}_users):\n    return {app}_users\n"
    )
    assert run(environment, "run", "shop.py", "--once", directory=tmp_path).startswith(f"ready {app}.shop (")
    assert_same([{"id": 1, "name": "Ann"}], ["id"], headwater_broker.bootstrap, f"{app}_users")
    said = run(environment, "run", "shop.py", "--flat", directory=tmp_path, status=1)
    assert said.startswith("Error: what an application declares says all")


def test_the_way_of_a_sqlite_table(
    headwater_broker: BrokerProcess, environment: dict[str, str], name: str, tmp_path: Path
) -> None:
    writer = make(tmp_path / "shop.db", "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT, age INT)")
    writer.execute("INSERT INTO users VALUES (1, 'Ann', 30)")
    table = "sqlite:///shop.db#users"

    def capture(*words: str, status: int = 0) -> str:
        return run(environment, *words, directory=tmp_path, status=status)

    assert capture("describe", table) == "main.users (key id): id bigint, name string, age bigint\n"
    capture("install", table)
    assert writer.execute("SELECT count(*) FROM _headwater_layouts").fetchone() == (1,)
    capture("run", table, "--once", f"--name={name}", "--prefix=our", "--partitions=1")
    capture("alter", table, "ALTER TABLE users DROP COLUMN age")
    writer.execute("INSERT INTO users (id, name) VALUES (2, 'Bea')")
    capture("run", table, "--once", f"--name={name}", "--prefix=our")
    topic = "our.main.users"
    wanted = [{"id": 1, "name": "Ann", "age": 30}, {"id": 2, "name": "Bea"}]
    assert_same(wanted, ["id"], headwater_broker.bootstrap, topic)
    [status] = [
        said for line in capture("status").splitlines() if (said := json.loads(line))["capture"] == name
    ]
    assert (status["source"], status["topics"]) == ("sqlite:///shop.db", [topic])
    capture("snapshot", name)
    capture("run", table, "--once", f"--name={name}", "--prefix=our")
    assert_same(
        [{"id": 1, "name": "Ann"}, {"id": 2, "name": "Bea"}], ["id"], headwater_broker.bootstrap, topic
    )
    capture("remove", table)
    assert "_headwater" not in " ".join(row[0] for row in writer.execute("SELECT name FROM sqlite_master"))
    assert "the change table was removed since" in capture("run", table, f"--name={name}", status=1)


def test_mistakes_are_told_in_a_line(environment: dict[str, str], tmp_path: Path) -> None:
    for words, said in {
        ("run", "nothing.py"): "nothing.py is neither an application's file nor URL#TABLE",
        ("run", "sqlite:///none.db#t"): "there is no SQLite file none.db",
        ("run", "sqlite:///none.db"): "names no table",
        ("install", "mysql://db/shop#t"): "mysql://db/shop needs no triggers",
        ("snapshot", "unheard-of"): "knows no capture 'unheard-of'",
    }.items():
        told = run(environment, *words, directory=tmp_path, status=1)
        assert said in told
        assert told.count("\n") == 1


def test_changes_come_at_once_and_are_counted(
    headwater_broker: BrokerProcess, environment: dict[str, str], name: str, tmp_path: Path
) -> None:
    path = tmp_path / "shop.db"
    writer = make(path, "CREATE TABLE users (id INTEGER PRIMARY KEY)")
    port = free_port()
    words = ["run", f"sqlite:///{path}#users", f"--name={name}", f"--metrics=127.0.0.1:{port}"]
    process = subprocess.Popen([HEADWATER, "capture", *words], env=environment, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"ready")
        writer.execute("INSERT INTO users VALUES (1)")
        deadline = time.monotonic() + 30
        while not read(headwater_broker.bootstrap, f"{name}.main.users") and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(read(headwater_broker.bootstrap, f"{name}.main.users")) == 1
        assert httpx.get(f"http://127.0.0.1:{port}/health").text == "ok\n"
        wanted = f'headwater_capture_rows_total{{capture="{name}"}} 1'
        while (
            wanted not in httpx.get(f"http://127.0.0.1:{port}/metrics").text and time.monotonic() < deadline
        ):
            time.sleep(0.05)
        assert wanted in httpx.get(f"http://127.0.0.1:{port}/metrics").text
        process.terminate()
        assert process.wait(15) == 0
    finally:
        terminate(process, 5)
        assert process.stdout is not None
        process.stdout.close()
