"""The page about the event store: its programs, commands and requests run, and print what it says."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from headwater.app import load
from headwater.cli import main
from headwater.events import EventStore
from headwater.testing.process import BrokerProcess, free_port, terminate

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "events.md").read_text()
PYTHON = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
BASH = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
OUTPUTS = re.findall(r"^```text\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("page") / "data") as broker:
        yield broker


def run(command: list[str], directory: Path, broker: BrokerProcess) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "HEADWATER_BROKER": f"kafka://{broker.bootstrap}",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    return subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_page_from_top_to_bottom(tmp_path: Path, broker: BrokerProcess) -> None:
    bank, teller, customers, statements = PYTHON
    (tmp_path / "bank.py").write_text(bank)
    (tmp_path / "statements.py").write_text(statements)
    for program, output in zip((teller, customers), OUTPUTS, strict=True):
        (tmp_path / "program.py").write_text(program.replace("127.0.0.1:9092", broker.bootstrap))
        done = run([sys.executable, "program.py"], tmp_path, broker)
        assert (done.stdout, done.returncode) == (output, 0), done.stderr
    load(tmp_path / "statements.py")

    commands, requests = BASH
    shown = {}
    for command in commands.splitlines():
        done = run(["sh", "-ec", command], tmp_path, broker)
        assert done.returncode == 0, done.stderr
        shown[command.split()[2]] = done
    assert json.loads(shown["list"].stdout) == {"stream": "accounts/ann", "version": 3}
    history = [json.loads(line) for line in shown["show"].stdout.splitlines()]
    assert [event["type"] for event in history] == ["Opened", "Deposited", "Withdrawn"]
    assert history[0]["metadata"] == {"by": "teller 7"}
    states = [json.loads(line) for line in shown["state"].stdout.splitlines()]
    assert [state["state"]["cents"] for state in states] == [0, 5000, 3500]
    assert "Rebuilt the projection balances of accounts: 3 events." in shown["rebuild-projection"].stderr
    assert "Rebuilt the index of accounts: 3 events." in shown["rebuild-index"].stderr

    port = free_port()
    command = [
        "serve",
        "--views",
        "sqlite:///views.db",
        "--events",
        "accounts",
        "--http",
        f"127.0.0.1:{port}",
    ]
    server = subprocess.Popen(
        [sys.executable, "-m", "headwater.cli", *command, "--broker", f"kafka://{broker.bootstrap}"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        assert server.stdout.readline().startswith("ready")
        done = run(["sh", "-ec", requests.replace("127.0.0.1:8080", f"127.0.0.1:{port}")], tmp_path, broker)
        assert done.stdout.count("201 Created") == 2, done.stdout
        last = json.loads(done.stdout[done.stdout.rindex('{"stream"') :])
        assert [event["version"] for event in last["events"]] == [1, 2]
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == 0
    finally:
        terminate(server, 5)
        assert server.stdout is not None
        server.stdout.close()


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (["show", "accounts/ghost"], "the stream accounts/ghost has no events"),
        (["show", "accounts"], "'accounts' is not STORE/STREAM, like accounts/ann."),
        (["list", "accuonts"], "there is no event store named accuonts at 127.0.0.1:"),
        (["erase", "accounts", "ghost", "--yes"], "no event of accounts has personal data about ghost"),
        (["state", "accounts/ann", "--by", "nothing.py:X"], "'nothing.py:X' is not FILE:NAME"),
    ],
)
def test_what_a_command_refuses(
    command: list[str], sentence: str, tmp_path: Path, broker: BrokerProcess
) -> None:
    address = f"kafka://{broker.bootstrap}"
    with EventStore(address, "accounts", directory=tmp_path):
        pass
    done = CliRunner().invoke(main, ["events", *command, f"--data={tmp_path}", f"--broker={address}"])
    assert done.exit_code in (1, 2)
    assert sentence in done.stderr
