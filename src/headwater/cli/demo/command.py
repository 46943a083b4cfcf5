"""`headwater demo`."""

from __future__ import annotations

import click

from headwater.cli.options import Address


@click.command("demo")
@click.option(
    "--rate",
    type=click.IntRange(min=0),
    default=20_000,
    show_default=True,
    metavar="N",
    help="Records to produce each second; 0 is as many as the broker takes.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="End after so many seconds; without it, Ctrl-C ends the demo.",
)
@click.option("--bootstrap", type=Address(), help="Use a running broker, Headwater's or Kafka's.")
def demo_command(rate: int, seconds: float | None, bootstrap: tuple[str, int] | None) -> None:
    """Run a producer, a broker and a consumer, and show what flows.

    The broker keeps its log in a temporary directory, which goes when the demo ends.
    """
    import asyncio

    from rich.console import Console

    from headwater.cli.demo.run import DemoOptions, run_demo

    asyncio.run(run_demo(DemoOptions(rate=rate, seconds=seconds, bootstrap=bootstrap), Console()))
