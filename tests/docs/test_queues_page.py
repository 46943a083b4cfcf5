"""The examples of the page about queues run, and print what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.testing.process import BrokerProcess

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "queues.md").read_text()
EXAMPLES = re.findall(
    r"^#+ ([^\n]+)\n(?:(?!^#).)*?^```python\n(.*?)^```\n\n```text\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The broker that the page starts, on free ports."""
    with BrokerProcess(tmp_path_factory.mktemp("queues") / "data", amqp=True) as broker:
        yield broker


def test_every_example_is_found() -> None:
    assert len(EXAMPLES) == PAGE.count("```python") == 10


@pytest.mark.parametrize(("name", "code", "output"), EXAMPLES, ids=[name for name, _, _ in EXAMPLES])
def test_example(name: str, code: str, output: str, broker: BrokerProcess) -> None:
    assert "127.0.0.1:5672" in code
    code = code.replace("127.0.0.1:5672", f"127.0.0.1:{broker.amqp_port}")
    code = code.replace("127.0.0.1:9092", broker.bootstrap)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, output), done.stderr
