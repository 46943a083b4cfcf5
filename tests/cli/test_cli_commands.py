"""The `headwater` command as a whole."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import headwater
from headwater.cli import main
from headwater.cli.errors import OneLineErrors
from headwater.core.errors import HeadwaterError

from .shell import Shell


def test_help_lists_every_command() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    listed = [line.split()[0] for line in result.output.partition("Commands:\n")[2].splitlines()]
    assert listed == [
        "alerts",
        "bindings",
        "broker",
        "cache",
        "capture",
        "check",
        "consume",
        "dead",
        "demo",
        "derived",
        "doctor",
        "events",
        "exchanges",
        "groups",
        "index",
        "produce",
        "queues",
        "run",
        "serve",
        "settings",
        "tokens",
        "topics",
        "transactions",
        "up",
        "users",
        "vhosts",
        "views",
        "warm-up",
    ]


def _leaves(command: click.Command) -> Iterator[click.Command]:
    if isinstance(command, click.Group):
        for child in command.commands.values():
            yield from _leaves(child)
    else:
        yield command


@pytest.mark.parametrize("command", [*_leaves(main)], ids=lambda command: command.callback.__name__)
def test_every_command_and_option_has_help(command: click.Command) -> None:
    assert command.help
    options = [p for p in command.params if isinstance(p, click.Option)]
    assert [option.name for option in options if not option.help] == []


def test_version() -> None:
    result = CliRunner().invoke(main, ["--version"])
    assert result.output == f"headwater, version {headwater.__version__}\n"


def test_help_loads_nothing_heavy() -> None:
    code = "import sys, headwater.cli; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    roots = {name.partition(".")[0] for name in loaded.split()}
    assert "click" in roots
    assert roots.isdisjoint({"asyncio", "kio", "rich", "uvloop", "cramjam", "confluent_kafka"})


def test_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "headwater.cli", "--version"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.startswith(
        "headwater, "
    )


@pytest.mark.parametrize(("where", "shown"), [("run", "größe €"), ("terminal", r"größe \u20ac")])
def test_output_where_the_locale_is_not_utf_8(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, shown: str
) -> None:
    app = tmp_path / "shop.py"
    app.write_text(
        'from headwater import App\napp = App("shop")\napp.topic("orders", "`größe €` string", key="größe €")'
    )
    monkeypatch.setenv("PYTHONIOENCODING", "iso-8859-1")
    shell = Shell("127.0.0.1:9092")
    if where == "run":
        assert shown in shell.run("check", str(app)).stdout
    else:
        assert shown in shell.terminal("check", str(app), encoding="iso-8859-1")


def _group_with(callback: Callable[[], object]) -> click.Group:
    group = OneLineErrors()
    group.add_command(click.Command("go", callback=callback))
    return group


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (HeadwaterError("the log is locked"), "Error: the log is locked\n"),
        (PermissionError(errno.EACCES, "Permission denied", "/data"), "Error: /data: Permission denied\n"),
        (OSError(errno.EADDRINUSE, "Address already in use"), "Error: Address already in use\n"),
    ],
)
def test_an_error_is_one_line_and_status_1(error: Exception, line: str) -> None:
    def fail() -> None:
        raise error

    result = CliRunner().invoke(_group_with(fail), ["go"])
    assert (result.exit_code, result.stderr, result.stdout) == (1, line, "")


def test_a_defect_keeps_its_traceback() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    assert isinstance(CliRunner().invoke(_group_with(fail), ["go"]).exception, ZeroDivisionError)
