"""The examples of the page about indexes, caches and warehouses run, and print what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.testing.process import BrokerProcess

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "derived.md").read_text()


def test_the_page(tmp_path: Path) -> None:
    python, printed = "", ""
    with BrokerProcess(tmp_path / "broker") as broker:
        environment = {"HEADWATER_BROKER": f"kafka://{broker.bootstrap}", "PATH": _path()}
        for kind, code in re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE):
            match kind:
                case "python" if code.startswith("# shop.py"):
                    (tmp_path / "shop.py").write_text(code)
                case "python":
                    connected = re.findall(r"^(?:import sqlite3|shop = .*)$", python, re.MULTILINE)
                    printed += _run(
                        [sys.executable, "-c", "\n".join([*connected, code])], tmp_path, environment
                    )
                    python += code
                case "sh":
                    printed += _run(["sh", "-ec", code], tmp_path, environment)
                case "text":
                    assert _rounded(printed) == _rounded(code)
                    printed = ""
                case "" if code.startswith("$"):
                    [(line, wanted), *_] = re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", code, re.MULTILINE)
                    found = subprocess.run(
                        ["sh", "-c", f"{line} --json"],
                        capture_output=True,
                        text=True,
                        cwd=tmp_path,
                        env=environment,
                    )
                    assert (found.returncode, '"extra": 1, "different": 1' in found.stdout) == (1, True), (
                        found
                    )
                    assert "1 extra, 1 different" in wanted


def _path() -> str:
    return f"{Path(sys.executable).parent}:/usr/bin:/bin"


def _run(command: list[str], directory: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=directory, env=environment, timeout=200
    )
    assert done.returncode == 0, done.stderr
    kept = [
        line for line in done.stdout.splitlines(keepends=True) if not line.startswith(("ready", '{"store"'))
    ]
    return "".join(kept)


def _rounded(text: str) -> str:
    """Return a text without the digits of scores, which another version of tantivy may count otherwise."""
    return re.sub(r'"score": [\d.]+', '"score": …', text)
