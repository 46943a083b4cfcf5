"""`headwater topics verify` on the data of a real broker."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.testing.process import BrokerProcess

from .shell import Shell

pytestmark = pytest.mark.real


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker with 2,000 records in a topic, and one in another."""
    with BrokerProcess(tmp_path / "data") as broker:
        shell = Shell(broker.bootstrap)
        given = "".join(f"value {i}\n" for i in range(2000))
        assert shell.run("produce", "orders", given=given).returncode == 0
        assert shell.run("produce", "others", given="x\n").returncode == 0
        yield broker


@pytest.fixture
def shell(broker: BrokerProcess) -> Shell:
    return Shell(broker.bootstrap)


def _segment(broker: BrokerProcess, topic: str) -> Path:
    [file] = broker.data.glob(f"topics/{topic}.*/0/*.log")
    return file


def test_beside_a_running_broker(shell: Shell, broker: BrokerProcess) -> None:
    [found] = shell.lines("topics", "verify", "--data", str(broker.data), "orders")
    assert found["broker_running"]
    assert (found["segments"], found["records"], found["findings"]) == (1, 2000, [])
    assert found["bytes"] == _segment(broker, "orders").stat().st_size
    [everything] = shell.lines("topics", "verify", "--data", str(broker.data))
    assert everything["records"] > 2001
    assert shell.run("produce", "orders", given="still here\n").returncode == 0


def test_a_table_of_damage(shell: Shell, broker: BrokerProcess) -> None:
    broker.stop()
    file = _segment(broker, "orders")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with _segment(broker, "others").open("ab") as torn:
        torn.write(b"\0\0\0")
    done = shell.run("topics", "verify", "--data", str(broker.data))
    assert (done.returncode, done.stderr) == (1, "")
    shown = shell.terminal("topics", "verify", "--data", str(broker.data), status=1)
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines() if "│" in line]
    damage, torn_row = (next(row for row in rows if row[0] == kind) for kind in ("damage", "torn"))
    assert damage[1:3] == ["orders", "0"]
    assert damage[5] == file.name
    assert torn_row[1] == "others"
    assert torn_row[-1] == "3"
    assert re.search(r"Checked [\d,]+ records in [\d,]+ batches .* \([\d.]+ GB/s\): 2 findings\.", shown)
    assert "beside a running broker" not in shown
    broker.start()  # what verify found, the broker serves around
    broker.stop()
    done = shell.run("topics", "verify", "--data", str(broker.data), "others")
    assert done.returncode == 0


def test_a_torn_tail_is_status_0(shell: Shell, broker: BrokerProcess) -> None:
    broker.kill()
    with _segment(broker, "others").open("ab") as torn:
        torn.write(b"\0\0\0")
    [found] = shell.lines("topics", "verify", "--data", str(broker.data), "others")
    assert [finding["kind"] for finding in found["findings"]] == ["torn"]


def test_recovery_says_so_in_fields(shell: Shell, broker: BrokerProcess) -> None:
    broker.kill()
    (_segment(broker, "orders").parent / "checkpoint").unlink(missing_ok=True)
    content = bytearray(_segment(broker, "orders").read_bytes())
    content[20] ^= 1
    _segment(broker, "orders").write_bytes(content)
    with _segment(broker, "others").open("ab") as torn:
        torn.write(b"\0\0\0")
    before = len(broker.errors())
    broker.options = ("--log-format=json",)
    broker.start()
    lines = [json.loads(line) for line in broker.errors()[before:].splitlines()]
    fields = {
        line["topic"]: (line["level"], line["partition"], line["reason"], line["file"], line["bytes"])
        for line in lines
        if "topic" in line
    }
    name = "00000000000000000000.log"
    assert fields["others"] == ("warning", 0, "torn", name, 3)
    assert fields["orders"][:4] == ("error", 0, "damaged", name)


def test_errors(shell: Shell, broker: BrokerProcess, tmp_path: Path) -> None:
    assert "holds no topic named no-such" in shell.error(
        "topics", "verify", "--data", str(broker.data), "no-such"
    )
    (tmp_path / "empty").mkdir()
    assert "is not a data directory" in shell.error("topics", "verify", "--data", str(tmp_path / "empty"))
    assert shell.run("topics", "verify", "--data", str(tmp_path / "missing")).returncode == 2
