"""`headwater settings`, and the page made of it."""

from __future__ import annotations

from click.testing import CliRunner

from headwater.cli import main
from headwater.cli.settings import sections


def test_every_setting_is_listed() -> None:
    result = CliRunner().invoke(main, ["settings"], env={"COLUMNS": "200"})
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
