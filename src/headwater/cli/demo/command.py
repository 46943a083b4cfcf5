"""`headwater demo`."""

from __future__ import annotations

from pathlib import Path

import click

from headwater.cli.options import Address
from headwater.cli.shared_options import master_option


@click.command("demo")
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    default=20.0,
    show_default=True,
    metavar="N",
    help="Visits to the shop each second; one makes about three events.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="End so many seconds after everything is ready; without it, Ctrl-C ends the demo.",
)
@click.option(
    "--http", type=Address(), help="The address of the page.  [default: 127.0.0.1:8080, or a free port]"
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep everything here; without it, in a temporary directory that goes when the demo ends.",
)
@master_option
@click.pass_context
def demo_command(
    ctx: click.Context,
    rate: float,
    seconds: float | None,
    http: tuple[str, int] | None,
    data: Path | None,
    master: str,
) -> None:
    """Run a shop with made-up customers, and show what happens in it on a live page.

    It is `headwater up` on an application that comes with Headwater, with a process that plays the customers.
    """
    import asyncio
    import tempfile

    from headwater.cli.demo.show import DemoOptions, run_demo

    with tempfile.TemporaryDirectory(prefix="headwater-demo-") as temporary:
        options = DemoOptions(rate, seconds, http, data or Path(temporary), master)
        ctx.exit(asyncio.run(run_demo(options)))
