"""`python -m bench`: measure Headwater, Kafka, RabbitMQ and Spark's connector side by side."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console

from bench.brokers import SIDES
from bench.figures import HEADWATER, HEADWATER_OS, Verdict
from bench.machine import this_machine
from bench.report import markdown, print_table
from bench.results import Results
from bench.runner import run, turns
from bench.scenarios import SCENARIOS, Scale
from headwater.core.errors import HeadwaterError

# What is started here starts as it does when pip has installed it: with its bytecode beside it.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

QUICK_DIVISOR = 5
RESULTS = Path(__file__).parent / "results"
FIGURES = [figure for scenario in SCENARIOS for figure in scenario.figures]


@click.command(help=__doc__)
@click.option(
    "--only",
    multiple=True,
    type=click.Choice([scenario.name for scenario in SCENARIOS]),
    help="Run only this scenario.",
)
@click.option(
    "--rounds", default=3, show_default=True, type=click.IntRange(min=1), help="Rounds to take the median of."
)
@click.option("--quick", is_flag=True, help=f"Do 1/{QUICK_DIVISOR} of the work, for a look.")
@click.option("--ours-only", is_flag=True, help="Measure Headwater alone, for profiling.")
@click.option("--peer-only", is_flag=True, help="Measure the peers alone.")
@click.option(
    "--with-kafka-many-partitions",
    is_flag=True,
    help="Let Kafka start 10,000 partitions too, which takes long.",
)
@click.option(
    "--with-flink",
    is_flag=True,
    help="Let Flink look for the pattern too; its first time fetches 300 MB.",
)
@click.option(
    "--directory",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Where the brokers keep their data, about 25 GB; the system's temporary directory unless given.",
)
@click.option(
    "--markdown",
    "file",
    type=click.Path(path_type=Path),
    help="Print this file of results as Markdown, and end.",
)
def main(
    only: tuple[str, ...],
    rounds: int,
    quick: bool,
    ours_only: bool,
    peer_only: bool,
    with_kafka_many_partitions: bool,
    with_flink: bool,
    directory: Path | None,
    file: Path | None,
) -> None:
    """Measure, print the table and write the results; fail where a target was missed."""
    if file:
        results = Results.read(file)
        click.echo(markdown(results, results.lines(FIGURES)), nl=False)
        return
    if ours_only and peer_only:
        raise click.UsageError("--ours-only and --peer-only leave nobody to measure")
    ours = frozenset({HEADWATER, HEADWATER_OS})
    peers = frozenset(SIDES) - ours
    sides = ours if ours_only else peers if peer_only else ours | peers
    chosen = [scenario for scenario in SCENARIOS if not only or scenario.name in only]
    optional = frozenset(
        name
        for name, wanted in (("partitions", with_kafka_many_partitions), ("spark-match", with_flink))
        if wanted
    )

    scale = Scale(divisor=QUICK_DIVISOR if quick else 1)
    results = Results(this_machine().as_dict(), rounds, scale.divisor)
    target = RESULTS / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    # Where nobody looks at a terminal, the table is not squeezed into its usual 80 columns.
    console = Console(width=None if sys.stdout.isatty() else 140)
    try:
        order = turns(chosen, rounds, sides, optional)
        run(order, results, scale, directory, announce=lambda text: click.echo(text, err=True))
    finally:
        # A run of half an hour that was interrupted keeps what it measured.
        if results.samples:
            results.write(target)
            print_table(results, results.lines(FIGURES), console)
            console.print(f"Written to {target}")
    if any(line.verdict is Verdict.MISSED for line in results.lines(FIGURES)):
        sys.exit(1)


if __name__ == "__main__":
    try:
        main()
    except HeadwaterError as error:
        sys.exit("\n".join([f"bench: {error}", *getattr(error, "__notes__", ())]))
