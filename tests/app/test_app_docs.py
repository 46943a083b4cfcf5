"""docs/applications.md: its snippets load, say what the page says, and every option is described."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from headwater import App
from headwater.app import load
from headwater.cli import main

from .conftest import Write

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "applications.md").read_text()
SNIPPETS: list[str] = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
REFUSALS: list[tuple[str, str]] = re.findall(
    r"^```python\n([^`]*)^```\n\n```text\n(Error: .*?)^```$", PAGE, re.DOTALL | re.MULTILINE
)


def test_the_application_has_the_graph_that_is_shown(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.cli.check.wants_json", lambda as_json: as_json)
    monkeypatch.setenv("COLUMNS", "200")
    result = CliRunner().invoke(main, ["check", write(SNIPPETS[0])])
    (shown,) = re.findall(r"^```text\n(shop  .*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert [line.rstrip() for line in result.output.splitlines()] == shown.splitlines()


@pytest.mark.parametrize(("snippet", "says"), REFUSALS, ids=lambda text: text.split(";")[0][-40:])
def test_what_is_refused_is_refused_in_these_words(snippet: str, says: str, write: Write) -> None:
    result = CliRunner().invoke(main, ["check", write(snippet)])
    assert (result.exit_code, result.stderr) == (1, says)


def test_every_other_snippet_loads(write: Write) -> None:
    others = [each for each in SNIPPETS[1:] if each not in [snippet for snippet, _ in REFUSALS]]
    assert (len(REFUSALS), len(others)) == (4, 1)
    for snippet in others:
        load(write(f'from headwater import App\napp = App("shop")\n{snippet}'))


@pytest.mark.parametrize(
    "name", ["topic", "table", "view", "stream", "alert", "sink", "index", "cache", "warehouse"]
)
def test_every_option_is_described_with_its_default(name: str) -> None:
    heading = "app" if name in ("topic", "table", "index", "cache", "warehouse") else "@app"
    section = PAGE.partition(f"### `{heading}.{name}`\n")[2].partition("\n#")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", section, re.MULTILINE)
    parameters = list(inspect.signature(getattr(App, name)).parameters.values())[1:]
    assert [option for option, _ in rows] == [parameter.name for parameter in parameters]
    for (_, default), parameter in zip(rows, parameters, strict=True):
        if isinstance(parameter.default, str):
            assert default == f'`"{parameter.default}"`'
