"""`headwater broker`: the durable log."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from headwater.cli.options import Address, Assignment


@click.command("broker")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default="./headwater-data",
    show_default=True,
    metavar="DIR",
    help="The directory of the log; it is made where it is missing.",
)
@click.option(
    "--kafka",
    type=Address(),
    default="127.0.0.1:9092",
    show_default=True,
    help="The address to accept Kafka clients on.",
)
@click.option(
    "--advertise",
    type=Address(),
    help="The address that clients are told to connect to, where it is not the one of --kafka.",
)
@click.option(
    "--durability",
    type=click.Choice(["sync", "os"]),
    default="sync",
    show_default=True,
    help="Whether an acknowledgement waits for the disk (sync) or for the operating system's cache (os).",
)
@click.option(
    "-c",
    "--config",
    "config",
    type=Assignment(),
    multiple=True,
    help="A broker setting, of those that `headwater settings` lists; may be given several times.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How the log on stderr looks: lines for people, or one JSON object a line.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="The least severe message to log.",
)
@click.pass_context
def broker_command(
    ctx: click.Context,
    data: Path,
    kafka: tuple[str, int],
    advertise: tuple[str, int] | None,
    durability: str,
    config: tuple[tuple[str, str], ...],
    log_format: str,
    log_level: str,
) -> None:
    """Run the broker until SIGTERM or Ctrl-C.

    Prints one line that starts with "ready" once it accepts connections.
    """
    # kio imports Hypothesis wherever it is installed, for strategies that no broker needs: 13 MB, 0.1 s.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    from headwater.cli.logging import set_up_logging
    from headwater.net.serve import BrokerOptions, run_broker

    set_up_logging(style=log_format, level=log_level)
    options = BrokerOptions(
        data=data, kafka=kafka, durability=durability, config=dict(config), advertise=advertise
    )
    ctx.exit(run_broker(options))
