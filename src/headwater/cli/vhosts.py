"""`headwater vhosts`: virtual hosts, each with queues and exchanges of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headwater.cli.amqp import connect, items, not_headwater, queue_broker_option
from headwater.cli.output import json_option, note, print_rows

if TYPE_CHECKING:
    from headwater.core.urls import AmqpUrl


@click.group("vhosts")
def vhosts_command() -> None:
    """List, add and delete virtual hosts of Headwater's broker."""


@vhosts_command.command("list")
@json_option
@queue_broker_option
def list_command(url: AmqpUrl, as_json: bool) -> None:
    """List the virtual hosts."""
    with connect(url) as connection:
        rows = sorted(items(connection, "vhosts"), key=lambda row: row["name"])
    print_rows(rows, ["name"], as_json=as_json)


@vhosts_command.command("add")
@click.argument("name")
@queue_broker_option
def add_command(url: AmqpUrl, name: str) -> None:
    """Make a virtual host."""
    from headwater.client.amqp import NotHeadwater
    from headwater.client.amqp.management import add_vhost

    with connect(url) as connection:
        try:
            add_vhost(connection, name)
        except NotHeadwater as error:
            raise not_headwater(error, "vhosts") from error
    note(f"Added {name}.")


@vhosts_command.command("delete")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@queue_broker_option
def delete_command(url: AmqpUrl, name: str, yes: bool) -> None:
    """Delete a virtual host with its queues, their messages and its exchanges."""
    from headwater.client.amqp import NotHeadwater
    from headwater.client.amqp.management import delete_vhost

    with connect(url) as connection:
        if not yes:
            click.confirm(f"Delete {name} and every message in it?", abort=True, err=True)
        try:
            delete_vhost(connection, name)
        except NotHeadwater as error:
            raise not_headwater(error, "vhosts") from error
    note(f"Deleted {name}.")
