"""`headwater exchanges`: where messages are published to."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

import click

from headwater.cli.amqp import arguments_option, connect, items, queue_broker_option, table
from headwater.cli.output import json_option, note, print_rows
from headwater.cli.queue_publish import publish_lines, publish_options

if TYPE_CHECKING:
    from headwater.core.urls import AmqpUrl


@click.group("exchanges")
def exchanges_command() -> None:
    """List, declare and delete exchanges; publish to them."""


@exchanges_command.command("list")
@json_option
@queue_broker_option
def list_command(url: AmqpUrl, as_json: bool) -> None:
    """List the exchanges of the virtual host; Headwater's broker only."""
    with connect(url) as connection:
        rows = sorted(items(connection, "exchanges"), key=lambda row: row["name"])
    columns = ["name", "type", "durable", "auto_delete", "internal", "arguments"]
    print_rows(rows, columns, as_json=as_json)


@exchanges_command.command("declare")
@click.argument("name")
@click.option(
    "--type",
    "kind",
    default="direct",
    show_default=True,
    metavar="TYPE",
    help="direct, fanout, topic, headers, x-consistent-hash, x-delayed-message or x-headwater-topic.",
)
@click.option("--transient", is_flag=True, help="An exchange that a restart of the broker takes away.")
@click.option("--auto-delete", is_flag=True, help="Delete it with its last binding.")
@click.option("--internal", is_flag=True, help="Only other exchanges may send to it.")
@arguments_option
@queue_broker_option
def declare_command(
    url: AmqpUrl,
    name: str,
    kind: str,
    transient: bool,
    auto_delete: bool,
    internal: bool,
    arguments: tuple[tuple[str, str], ...],
) -> None:
    """Declare an exchange; durable, unless it is said otherwise.

    One that is there already must be the same.
    """
    with connect(url) as connection:
        connection.channel().declare_exchange(
            name,
            kind,
            durable=not transient,
            auto_delete=auto_delete,
            internal=internal,
            arguments=table(arguments),
        )
    note(f"Declared {name}.")


@exchanges_command.command("delete")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--if-unused", is_flag=True, help="Only where nothing is bound to it.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@queue_broker_option
def delete_command(url: AmqpUrl, names: tuple[str, ...], if_unused: bool, yes: bool) -> None:
    """Delete exchanges and their bindings."""
    with connect(url) as connection:
        channel = connection.channel()
        for name in names:
            channel.declare_exchange(name, passive=True)
        if not yes:
            click.confirm(f"Delete {', '.join(names)} and what is bound to it?", abort=True, err=True)
        for name in names:
            channel.delete_exchange(name, if_unused=if_unused)
    note(f"Deleted {', '.join(names)}.")


@exchanges_command.command("publish")
@click.argument("name")
@click.option(
    "--key",
    "routing_key",
    metavar="TEXT",
    help="The routing key; without it, that of each JSON line, or none.",
)
@publish_options
@queue_broker_option
def publish_command(
    url: AmqpUrl,
    name: str,
    routing_key: str | None,
    source: IO[bytes],
    as_json: bool,
    headers: tuple[tuple[str, str], ...],
    transient: bool,
) -> None:
    """Publish a message to an exchange for each line, from stdin or a file.

    Ends with status 0 once the broker has confirmed all of them, and with status 1 where one of them reached
    no queue.
    """
    publish_lines(
        url,
        source,
        as_json=as_json,
        headers=headers,
        transient=transient,
        exchange=name,
        routing_key=routing_key,
        check=lambda channel: channel.declare_exchange(name, passive=True),
    )
