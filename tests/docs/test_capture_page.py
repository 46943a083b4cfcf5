"""The examples of the page about capture run, and print what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.testing.process import BrokerProcess

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "capture.md").read_text()
SECTIONS = dict(re.findall(r"^#+ ([^\n]+)\n(.*?)(?=^#+ |\Z)", PAGE, re.DOTALL | re.MULTILINE))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The broker that the page starts, on a free port."""
    with BrokerProcess(tmp_path_factory.mktemp("capture-page") / "data") as broker:
        yield broker


def follow(section: str, directory: Path, broker: BrokerProcess) -> None:
    """Do what a section says, from its first to its last example; Python goes on where it was."""
    python = ""
    printed = ""
    for kind, code in re.findall(r"^```(\w+)\n(.*?)^```$", section, re.DOTALL | re.MULTILINE):
        match kind:
            case "python" if not code.startswith("app."):
                python += code.replace("127.0.0.1:9092", broker.bootstrap)
            case "sh":
                printed += _python(python, directory)
                python = _imports(python)
                for line in code.splitlines():
                    program = str(Path(sys.executable).with_name("headwater"))
                    command = line.replace("headwater", program, 1) + f" --broker kafka://{broker.bootstrap}"
                    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=directory)
                    assert done.returncode == 0, done.stderr
            case "text":
                printed += _python(python, directory)
                python = ""
                assert printed == code
                printed = ""


def _python(code: str, directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=directory, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _imports(code: str) -> str:
    """Return what the next piece of Python needs of one before it."""
    kept = [
        line
        for line in code.splitlines()
        if line.startswith(("import ", "from ")) or "sqlite3.connect" in line
    ]
    return "\n".join([*kept, ""])


def test_the_first_example(broker: BrokerProcess, tmp_path: Path) -> None:
    follow(SECTIONS["Change data capture"], tmp_path, broker)


def test_the_outbox(broker: BrokerProcess, tmp_path: Path) -> None:
    follow(SECTIONS["The outbox pattern"], tmp_path, broker)
