"""`headwater settings`, and the page made of it."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from headwater.cli import main
from headwater.cli.settings import sections


def test_a_pipe_gets_a_line_of_json_for_each_setting() -> None:
    result = CliRunner().invoke(main, ["settings"])
    lines = [json.loads(line) for line in result.output.splitlines()]
    assert [line["setting"] for line in lines] == [s.name for section in sections() for s in section.settings]
    (partitions,) = [line for line in lines if line["setting"] == "num.partitions"]
    assert (partitions["of"], partitions["type"], partitions["default"]) == ("broker", "int", "1")


@pytest.mark.parametrize("columns", ["80", "200"])
def test_every_setting_is_listed(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.cli.settings.wants_json", lambda as_json: False)
    result = CliRunner().invoke(main, ["settings"], env={"COLUMNS": columns})
    assert result.exit_code == 0
    for section in sections():
        assert section.title in result.output
        for setting in section.settings:
            assert setting.name in result.output


def test_every_default_fits_its_own_setting() -> None:
    for section in sections():
        for setting in section.settings:
            text = setting.text(setting.default)
            if text is not None:
                assert setting.parse(text) == setting.default, setting.name


def test_every_setting_says_what_it_means() -> None:
    for section in sections():
        assert [s.name for s in section.settings if not s.help.strip().endswith(".")] == []


def test_markdown_is_a_table_of_four_columns() -> None:
    result = CliRunner().invoke(main, ["settings", "--markdown"])
    rows = [line for line in result.output.splitlines() if line.startswith("|")]
    assert len(rows) > 10
    assert {row.replace("\\|", "").count("|") for row in rows} == {5}
