"""The README's snippets run, and print what the README says they print."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from headwater.testing import run_app
from headwater.testing.process import BrokerProcess, free_port

pytestmark = pytest.mark.real

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Snippet:
    """A block of code, and the block of text after it."""

    language: str
    code: str
    output: str


def snippets(page: str) -> list[Snippet]:
    """Return the blocks of bash and Python that are followed by what they print."""
    blocks = re.findall(
        r"^```(bash|python)\n(.*?)^```\n\n```text\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE
    )
    return [Snippet(*block) for block in blocks]


README = (ROOT / "README.md").read_text()
SNIPPETS = snippets(README)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The broker that the README starts, on a free port."""
    with BrokerProcess(tmp_path_factory.mktemp("readme") / "data") as broker:
        yield broker


def test_every_snippet_is_found() -> None:
    assert len(SNIPPETS) == len(re.findall(r"^```(?:bash|python)$", README, re.MULTILINE)) == 2


@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda snippet: snippet.language)
def test_snippet(snippet: Snippet, broker: BrokerProcess, tmp_path: Path) -> None:
    assert "127.0.0.1:9092" in snippet.code
    code = snippet.code.replace("127.0.0.1:9092", broker.bootstrap)
    command = ["bash", "-euc", code] if snippet.language == "bash" else [sys.executable, "-c", code]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, cwd=tmp_path, env=_environment()
    )
    assert (done.returncode, done.stdout) == (0, snippet.output), done.stderr


def _environment() -> dict[str, str]:
    """Return the environment with the `headwater` of this Python in its path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path}


def test_the_broker_starts_as_the_readme_says(tmp_path: Path) -> None:
    (line,) = re.findall(r"^\.venv/bin/(headwater broker .*)$", README, re.MULTILINE)
    words = line.replace(":9092", f":{free_port()}").split()
    with subprocess.Popen(
        words, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=_environment()
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().startswith("ready")
        finally:
            process.terminate()
        assert process.wait(20) == 0
    assert (tmp_path / "data").is_dir()


def test_the_application_computes_what_it_says(tmp_path: Path) -> None:
    (code,) = re.findall(r"^```py\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)
    (order,) = re.findall(r"-d '(\{.*\})'", README)
    (tmp_path / "shop.py").write_text(code)
    (row,) = run_app(tmp_path / "shop.py", {"orders": [json.loads(order)]})["revenue"]
    assert (row["country"], row["revenue"]) == ("DE", 9.5)
