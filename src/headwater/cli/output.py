"""What commands print: tables for people on a terminal, JSON for whatever reads a pipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click

C = TypeVar("C", bound=Callable[..., Any])

Row = Mapping[str, Any]


def json_option(command: C) -> C:
    """Give a command the option `--json`; it gets `as_json`."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print JSON on a terminal too; a pipe gets it anyway."
    )(command)


def wants_json(as_json: bool) -> bool:
    """Tell whether to print JSON: where it is asked for, or where nobody watches."""
    return as_json or not sys.stdout.isatty()


def print_json(document: object) -> None:
    """Print a document, one line where a program reads it, several where a person does."""
    click.echo(json.dumps(document, indent=2 if sys.stdout.isatty() else None, ensure_ascii=False))


def print_rows(rows: Iterable[Row], columns: Sequence[str], *, as_json: bool, title: str = "") -> None:
    """Print rows as a table, or as JSON lines with all they hold."""
    if wants_json(as_json):
        for row in rows:
            click.echo(json.dumps(row, ensure_ascii=False))
        return
    print_table(rows, columns, title=title)


def print_table(rows: Iterable[Row], columns: Sequence[str], *, title: str = "") -> None:
    """Print rows as a table; numbers stand to the right."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    rows = list(rows)
    console = Console(markup=False, highlight=False)
    if title:
        # As the table's own title it would be no wider than the table.
        console.print(Text(title, style="bold"))
    table = Table()
    for column in columns:
        values = [row.get(column) for row in rows]
        numeric = any(isinstance(value, int | float) for value in values)
        table.add_column(column.replace("_", " "), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(row.get(column))) for column in columns))
    console.print(table)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else str(value)


def note(text: str) -> None:
    """Say something to a person without disturbing what is piped."""
    click.echo(text, err=True)
