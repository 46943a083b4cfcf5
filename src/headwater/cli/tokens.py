"""`headwater tokens`: who may ask `headwater serve`, and for what."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from headwater.cli.output import json_option, note, print_rows

C = TypeVar("C", bound=Callable[..., Any])


def _file_option(command: C) -> C:
    return click.option(
        "--tokens",
        "path",
        type=click.Path(dir_okay=False, path_type=Path),
        default="headwater-data/tokens",
        show_default=True,
        metavar="FILE",
        help="The file of tokens, which holds their hashes.",
    )(command)


@click.group("tokens")
def tokens_command() -> None:
    """Add, list and remove the tokens of `headwater serve`."""


@tokens_command.command("add")
@click.argument("name")
@click.option(
    "--role",
    "roles",
    type=click.Choice(["read", "write", "operate"]),
    multiple=True,
    default=("read",),
    show_default=True,
    help="What the token is good for; may be given several times.",
)
@_file_option
def add_command(name: str, roles: tuple[str, ...], path: Path) -> None:
    """Make a token, and print it: it cannot be shown again."""
    from headwater.serve.access import add_holder

    click.echo(add_holder(path, name, roles))
    note(f"keep it: {path} holds only its hash")


@tokens_command.command("list")
@_file_option
@json_option
def list_command(path: Path, as_json: bool) -> None:
    """List the tokens by name, with their roles."""
    from headwater.serve.access import ROLES, read_holders

    lines = path.read_text().splitlines() if path.exists() else []
    rows = [
        {"name": holder.name, "roles": ",".join(role for role in ROLES if role in holder.roles)}
        for holder in read_holders(lines, str(path))
    ]
    print_rows(rows, ["name", "roles"], as_json=as_json)


@tokens_command.command("remove")
@click.argument("name")
@_file_option
def remove_command(name: str, path: Path) -> None:
    """Remove a token: a server that runs refuses it within a second."""
    from headwater.serve.access import remove_holder

    remove_holder(path, name)
