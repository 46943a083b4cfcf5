"""`headwater queues move` and `redrive`: messages from one queue to others."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headwater.cli.amqp import QueueBrokerUrl, connect, queue_broker_option
from headwater.cli.output import note

if TYPE_CHECKING:
    from headwater.client.amqp import Delivery, Transfer
    from headwater.core.urls import AmqpUrl

C = TypeVar("C", bound=Callable[..., Any])

_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(?:/s)?")


class Rate(click.ParamType[float]):
    """So many a second, `50/s`."""

    name = "N/s"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number, or end with status 2."""
        if isinstance(value, float):
            return value
        found = _RATE.fullmatch(str(value))
        if not found or not float(found[1]):
            self.fail(f"{value!r} is not a rate, like 50/s.", param, ctx)
        return float(found[1])


def _transfer_options(command: C) -> C:
    for option in (
        click.option("--rate", type=Rate(), help="Move at most so many messages a second, like 50/s."),
        click.option(
            "--count",
            type=click.IntRange(min=1),
            metavar="N",
            help="Move at most so many; without it, those that wait when it begins.",
        ),
    ):
        command = option(command)
    return command


@click.command("move")
@click.argument("source")
@click.argument("destination")
@click.option(
    "--to-broker",
    "to_url",
    type=QueueBrokerUrl(),
    help="DESTINATION is a queue of this broker, Headwater's or RabbitMQ; it must be there.",
)
@_transfer_options
@queue_broker_option
def move_command(
    url: AmqpUrl,
    source: str,
    destination: str,
    to_url: AmqpUrl | None,
    count: int | None,
    rate: float | None,
) -> None:
    """Move messages from one queue to another, in their order.

    No message is lost: each is taken out of SOURCE once the broker has confirmed it in DESTINATION. What is
    under way when the command is killed is in both queues afterwards, so at most a few hundred messages are
    there twice.
    """
    if source == destination and to_url in (None, url):
        raise click.UsageError("SOURCE and DESTINATION are the same queue.")
    _transfer(url, source, destination, count, rate, to_url)


@click.command("redrive")
@click.argument("dead_letter_queue")
@click.option(
    "--to",
    "destination",
    metavar="QUEUE",
    help="Send all of them here; without it, each to the queue that its x-death header says it died in first.",
)
@_transfer_options
@queue_broker_option
def redrive_command(
    url: AmqpUrl, dead_letter_queue: str, destination: str | None, count: int | None, rate: float | None
) -> None:
    """Send the messages of a dead-letter queue back to where they came from.

    Do it after a fix: what fails again becomes a dead letter again, and is not sent twice by the same
    command. Messages that do not say where they came from stay. None is lost: each is taken out once the
    broker has confirmed it in its queue. What is under way when the command is killed is in both queues
    afterwards, so at most a few hundred messages are there twice.
    """
    if dead_letter_queue == destination:
        raise click.UsageError("--to names the dead-letter queue itself.")
    _transfer(url, dead_letter_queue, destination, count, rate)


def _transfer(
    url: AmqpUrl,
    source: str,
    destination: str | None,
    count: int | None,
    rate: float | None,
    to_url: AmqpUrl | None = None,
) -> None:
    from headwater.client.amqp import NotTaken, Refused, Transfer, origin

    def whither(delivery: Delivery) -> str | None:
        return destination or origin(delivery.properties, source)

    began = time.monotonic()
    with ExitStack() as stack:
        connection = stack.enter_context(connect(url))
        target = stack.enter_context(connect(to_url)) if to_url else connection
        if destination is not None:
            target.channel().look_up(destination)
        transfer = Transfer(connection, source, whither, to=target, limit=count, rate=rate)
        try:
            _show(transfer, source)
        except (NotTaken, Refused) as error:
            raise click.ClickException(f"{error}; {transfer.moved:,} were moved") from None
        except KeyboardInterrupt:
            note("Interrupted.")
    seconds = time.monotonic() - began
    there = f" to {destination}" if destination else ""
    note(f"Moved {transfer.moved:,} messages from {source}{there} in {seconds:.2f} s.")
    if transfer.kept:
        note(
            f"{transfer.kept:,} messages stay in {source}: they do not say which queue they died in; "
            "--to QUEUE sends them to one."
        )


def _show(transfer: Transfer, source: str) -> None:
    """Run it, with a bar for who watches."""
    if not sys.stderr.isatty():
        for _ in transfer.run():
            pass
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True, markup=False)) as progress:
        bar = progress.add_task(source, total=transfer.total)
        for _ in transfer.run():
            progress.update(bar, completed=transfer.moved + transfer.kept)
