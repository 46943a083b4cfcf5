"""`python -m bench.spark SIDE WORK`: one side's pipelines in a process of their own, so that sessions do not mix.

Prints one line of JSON with what was measured.
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from bench.figures import HEADWATER, SPARK
from bench.spark.side import WORK, Side, passes_of


@click.command(help=__doc__)
@click.argument("side", type=click.Choice([HEADWATER, SPARK]))
@click.argument("work", type=click.Choice(list(WORK)))
@click.option("--broker", "bootstrap", required=True, metavar="HOST:PORT")
@click.option("--orders", required=True, type=int, help="How many orders the topic holds.")
@click.option("--passes", default=4, show_default=True, type=click.IntRange(min=2))
@click.option("--scratch", required=True, type=click.Path(path_type=Path))
def main(side: str, work: str, bootstrap: str, orders: int, passes: int, scratch: Path) -> None:
    opened = open_side(side, bootstrap, scratch)
    try:
        measured = passes_of(opened, work, orders, passes, scratch)
    finally:
        opened.spark.stop()
    click.echo(json.dumps(measured))


def open_side(name: str, bootstrap: str, scratch: Path) -> Side:
    """Start a side's session."""
    if name == HEADWATER:
        from bench.spark.ours import Headwater

        return Headwater(bootstrap, scratch)
    from bench.spark.peer import SparkConnector

    return SparkConnector(bootstrap, scratch)


if __name__ == "__main__":
    main()
