"""`headwater queues`: what queues there are, and what waits in them."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

import click

from headwater.cli.amqp import arguments_option, connect, items, queue_broker_option, table
from headwater.cli.output import json_option, note, print_rows, wants_json
from headwater.cli.queue_publish import publish_lines, publish_options
from headwater.cli.queue_transfer import move_command, redrive_command

if TYPE_CHECKING:
    from headwater.client.amqp import Delivery
    from headwater.core.urls import AmqpUrl

_SHOWN_BYTES = 200
_AT_ONCE = 100


@click.group("queues")
def queues_command() -> None:
    """List, declare, delete and purge queues; publish, get, move and redrive messages."""


queues_command.add_command(move_command)
queues_command.add_command(redrive_command)


@queues_command.command("list")
@json_option
@queue_broker_option
def list_command(url: AmqpUrl, as_json: bool) -> None:
    """List the queues of the virtual host, with their messages and consumers; Headwater's broker only."""
    with connect(url) as connection:
        rows = sorted(items(connection, "queues"), key=lambda row: row["name"])
    shown = rows if wants_json(as_json) else [{**row, "features": _features(row)} for row in rows]
    columns = ["name", "messages_ready", "messages_unacknowledged", "message_bytes", "consumers", "features"]
    print_rows(shown, columns, as_json=as_json)


def _features(row: dict[str, Any]) -> list[str]:
    """Return what a queue was declared with, in few words."""
    flags = ["durable" if row["durable"] else "transient"]
    flags += [name.replace("_", "-") for name in ("exclusive", "auto_delete") if row[name]]
    return flags + [f"{name}={value}" for name, value in row["arguments"].items()]


@queues_command.command("declare")
@click.argument("name")
@click.option("--transient", is_flag=True, help="A queue that a restart of the broker takes away.")
@click.option("--auto-delete", is_flag=True, help="Delete it when its last consumer has gone.")
@arguments_option
@queue_broker_option
def declare_command(
    url: AmqpUrl, name: str, transient: bool, auto_delete: bool, arguments: tuple[tuple[str, str], ...]
) -> None:
    """Declare a queue; durable, unless it is said otherwise.

    One that is there already must be the same.
    """
    with connect(url) as connection:
        connection.channel().declare_queue(
            name, durable=not transient, auto_delete=auto_delete, arguments=table(arguments)
        )
    note(f"Declared {name}.")


@queues_command.command("delete")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--if-empty", is_flag=True, help="Only where no message waits.")
@click.option("--if-unused", is_flag=True, help="Only where nobody consumes.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@queue_broker_option
def delete_command(url: AmqpUrl, names: tuple[str, ...], if_empty: bool, if_unused: bool, yes: bool) -> None:
    """Delete queues and the messages in them."""
    with connect(url) as connection:
        channel = connection.channel()
        waiting = sum(channel.look_up(name).messages for name in names)
        if not yes:
            click.confirm(f"Delete {', '.join(names)} with {waiting:,} messages?", abort=True, err=True)
        for name in names:
            channel.delete_queue(name, if_unused=if_unused, if_empty=if_empty)
    note(f"Deleted {', '.join(names)}.")


@queues_command.command("purge")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@queue_broker_option
def purge_command(url: AmqpUrl, name: str, yes: bool) -> None:
    """Drop the messages that wait in a queue; those on their way to consumers stay."""
    with connect(url) as connection:
        channel = connection.channel()
        waiting = channel.look_up(name).messages
        if not yes:
            click.confirm(f"Drop {waiting:,} messages of {name}?", abort=True, err=True)
        dropped = channel.purge_queue(name)
    note(f"Dropped {dropped:,} messages of {name}.")


@queues_command.command("publish")
@click.argument("name")
@publish_options
@queue_broker_option
def publish_command(
    url: AmqpUrl,
    name: str,
    source: IO[bytes],
    as_json: bool,
    headers: tuple[tuple[str, str], ...],
    transient: bool,
) -> None:
    """Publish a message to a queue for each line, from stdin or a file.

    Ends with status 0 once the broker has confirmed all of them.
    """
    publish_lines(
        url,
        source,
        as_json=as_json,
        headers=headers,
        transient=transient,
        exchange="",
        routing_key=name,
        check=lambda channel: channel.look_up(name),
    )


@queues_command.command("get")
@click.argument("name")
@click.option(
    "--count", type=click.IntRange(min=1), default=1, show_default=True, metavar="N", help="How many."
)
@click.option("--take", is_flag=True, help="Take them out; without it they go back to their places.")
@json_option
@queue_broker_option
def get_command(url: AmqpUrl, name: str, count: int, take: bool, as_json: bool) -> None:
    """Print the next messages of a queue.

    They go back to where they were, marked as redelivered; with --take they are acknowledged once they are
    printed, and gone.
    """
    from headwater.cli.queue_lines import document

    with connect(url) as connection:
        channel = connection.channel()
        channel.look_up(name)
        left = count
        while left and (deliveries := channel.get_many(name, min(left, _AT_ONCE))):
            left -= len(deliveries)
            rows = [document(name, delivery) for delivery in deliveries]
            if not wants_json(as_json):
                rows = [_short(row, delivery) for row, delivery in zip(rows, deliveries, strict=True)]
            print_rows(rows, ["exchange", "routing_key", "redelivered", "headers", "body"], as_json=as_json)
            if take:
                channel.ack(deliveries[-1].tag, multiple=True)
        channel.close()
    if left == count:
        note(f"{name} is empty.")


def _short(row: dict[str, Any], delivery: Delivery) -> dict[str, Any]:
    body = delivery.body[:_SHOWN_BYTES].decode(errors="replace")
    more = len(delivery.body) - _SHOWN_BYTES
    headers = ", ".join(f"{name}={value}" for name, value in row["headers"].items())
    return {**row, "headers": headers, "body": f"{body}… ({more:,} bytes more)" if more > 0 else body}
