"""docs/benchmarks.md describes every option and every scenario."""

from __future__ import annotations

import re
from pathlib import Path

import click

from bench.__main__ import main
from bench.scenarios import SCENARIOS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"


def test_every_option_is_described() -> None:
    described = set(re.findall(r"^\| `(--[a-z-]+)", PAGE.read_text(), re.MULTILINE))
    options = {name for option in main.params if isinstance(option, click.Option) for name in option.opts}
    assert described == options


def test_every_scenario_is_described() -> None:
    described = set(re.findall(r"^\| `([a-z][a-z-]*)` \|", PAGE.read_text(), re.MULTILINE))
    assert described == {scenario.name for scenario in SCENARIOS}
