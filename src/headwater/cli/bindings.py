"""`headwater bindings`: which queues and exchanges get what of an exchange."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headwater.cli.amqp import arguments_option, connect, items, queue_broker_option, table
from headwater.cli.output import json_option, note, print_rows

if TYPE_CHECKING:
    from headwater.client.amqp import Binding
    from headwater.core.urls import AmqpUrl

C = TypeVar("C", bound=Callable[..., Any])


def _binding_options(command: C) -> C:
    for option in (
        click.option("--to-exchange", is_flag=True, help="DESTINATION is an exchange, and not a queue."),
        arguments_option,
        click.option(
            "--key",
            default="",
            metavar="TEXT",
            help="The binding's key: a routing key, a pattern or a weight.",
        ),
        click.argument("destination"),
        click.argument("source"),
    ):
        command = option(command)
    return command


@click.group("bindings")
def bindings_command() -> None:
    """List, add and remove bindings."""


@bindings_command.command("list")
@click.option("--source", metavar="EXCHANGE", help="Only those of this exchange.")
@click.option("--destination", metavar="NAME", help="Only those to this queue or exchange.")
@json_option
@queue_broker_option
def list_command(url: AmqpUrl, source: str | None, destination: str | None, as_json: bool) -> None:
    """List the bindings of the virtual host; Headwater's broker only."""
    with connect(url) as connection:
        found = items(connection, "bindings")
    rows = [
        row
        for row in sorted(found, key=lambda row: (row["source"], row["destination"], row["routing_key"]))
        if source in (None, row["source"]) and destination in (None, row["destination"])
    ]
    columns = ["source", "routing_key", "destination", "destination_type", "arguments"]
    print_rows(rows, columns, as_json=as_json)


@bindings_command.command("add")
@_binding_options
@queue_broker_option
def add_command(url: AmqpUrl, **said: Any) -> None:
    """Have the exchange SOURCE send to the queue DESTINATION."""
    binding = _binding(**said)
    with connect(url) as connection:
        connection.channel().bind(binding)
    note(f"Bound {binding.destination} to {binding.source}.")


@bindings_command.command("remove")
@_binding_options
@queue_broker_option
def remove_command(url: AmqpUrl, **said: Any) -> None:
    """Take the binding with this key and these arguments back; one that is not there is none."""
    binding = _binding(**said)
    with connect(url) as connection:
        connection.channel().unbind(binding)
    note(f"{binding.destination} is not bound to {binding.source} by {binding.routing_key!r}.")


def _binding(
    source: str, destination: str, key: str, arguments: tuple[tuple[str, str], ...], to_exchange: bool
) -> Binding:
    from headwater.client.amqp import Binding

    return Binding(source, destination, key, table(arguments), to_exchange)
