"""Publishing lines as messages, to a queue or to an exchange."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from headwater.cli.amqp import connect, table
from headwater.cli.lines import BadLine, read_lines
from headwater.cli.options import Assignment
from headwater.cli.output import note
from headwater.cli.queue_lines import PERSISTENT, TRANSIENT, parse, plain

if TYPE_CHECKING:
    from headwater.client.amqp import Channel
    from headwater.core.urls import AmqpUrl

C = TypeVar("C", bound=Callable[..., Any])


def publish_options(command: C) -> C:
    """Give a command the options that say what to publish; it gets `source`, `as_json`, `headers`, `transient`."""
    for option in (
        click.option(
            "--transient", is_flag=True, help="Publish messages that a restart of the broker may lose."
        ),
        click.option(
            "-H", "--header", "headers", type=Assignment(), multiple=True, help="A header; several times."
        ),
        click.option(
            "--json",
            "as_json",
            is_flag=True,
            help="Each line is a JSON object with body, headers, properties, routing_key.",
        ),
        click.option(
            "--file",
            "source",
            type=click.File("rb"),
            default="-",
            metavar="FILE",
            help="Read from here; without it, from stdin.",
        ),
    ):
        command = option(command)
    return command


def publish_lines(
    url: AmqpUrl,
    source: IO[bytes],
    *,
    as_json: bool,
    headers: tuple[tuple[str, str], ...],
    transient: bool,
    exchange: str,
    routing_key: str | None,
    check: Callable[[Channel], object],
) -> None:
    """Publish a message for each line, and say how many; `check` raises where there is no such place."""
    read = parse if as_json else plain
    mode = TRANSIENT if transient else PERSISTENT
    common = table(headers)
    count = 0
    began = time.monotonic()
    with connect(url) as connection:
        channel = connection.channel()
        check(channel)
        channel.confirm()
        try:
            for draft in read_lines(source, lambda text: read(text, common, mode), "message"):
                key = draft.routing_key if routing_key is None else routing_key
                channel.publish(
                    draft.body,
                    exchange=exchange,
                    routing_key=key or "",
                    properties=draft.properties.encode(),
                    mandatory=True,
                )
                count += 1
            channel.flush()
        except KeyboardInterrupt:
            channel.flush()
        except (BadLine, ValueError) as error:
            channel.flush()
            reason = f"{error}; the {count:,} messages before it were published"
            raise click.ClickException(reason) from None
    seconds = time.monotonic() - began
    rate = count / seconds if seconds else 0
    place = f"the exchange {exchange}" if exchange else str(routing_key)
    note(f"Published {count:,} messages to {place} in {seconds:.2f} s ({rate:,.0f} messages/s).")
