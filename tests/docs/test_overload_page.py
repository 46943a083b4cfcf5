"""The examples of the page about overload run, and print what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.testing.process import BrokerProcess

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "overload.md").read_text()
EXAMPLES = re.findall(
    r"^## (\w+)\n(?:(?!^## ).)*?^```python\n(.*?)^```\n\n```text\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The broker that the page starts, on a free port."""
    settings = dict(re.findall(r"-c ([a-z.]+)=(\S+)", PAGE))
    assert settings
    with BrokerProcess(tmp_path_factory.mktemp("overload") / "data", settings=settings) as broker:
        yield broker


def test_every_example_is_found() -> None:
    assert [name for name, _, _ in EXAMPLES] == ["Buffer", "Drop", "Backpressure"]


@pytest.mark.parametrize(("name", "code", "output"), EXAMPLES, ids=[name for name, _, _ in EXAMPLES])
def test_example(name: str, code: str, output: str, broker: BrokerProcess) -> None:
    assert "127.0.0.1:9092" in code
    code = code.replace("127.0.0.1:9092", broker.bootstrap)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=90)
    assert (done.returncode, done.stdout) == (0, output), done.stderr
