"""Results as a table: on the terminal, and in Markdown for the documentation."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from bench.figures import Line, Verdict
from bench.results import Results

HEADINGS = ("work", "unit", "Headwater", "peer", "peer's", "ratio", "target", "verdict")
_COLOURS = {Verdict.MET: "green", Verdict.MISSED: "red", Verdict.UNKNOWN: "dim"}


def number(value: float | None) -> str:
    """Write a value with the digits that matter.

    >>> number(271547.3), number(2.2439), number(0.0683), number(None)
    ('271,547', '2.24', '0.068', '-')
    """
    if value is None:
        return "-"
    if value >= 1_000:
        return f"{value:,.0f}"
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def cells(line: Line) -> tuple[str, ...]:
    """Return a line's cells, in the order of the headings."""
    return (
        line.figure.title,
        line.figure.unit,
        number(line.ours),
        line.peer,
        number(line.theirs),
        "-" if line.ratio is None else f"{line.ratio:.2f}×",
        "-" if line.target is None else str(line.target),
        line.verdict.value,
    )


def measured_on(results: Results) -> str:
    """Return the sentence that says where, when and how the figures were measured."""
    machine = results.machine
    # Results of before these were peers do not name them.
    others = "".join(
        f", {title} {machine[name]}"
        for name, title in (("rabbitmq", "RabbitMQ"), ("spark", "Spark"))
        if name in machine
    )
    share = "" if results.divisor == 1 else f", with 1/{results.divisor} of the work"
    return (
        f"Measured on {machine['date']}: {machine['cores']} cores of {machine['processor']}, "
        f"{machine['memory_gigabytes']} GB, Linux {machine['kernel']}, Python {machine['python']}, "
        f"Java {machine['java']}, Kafka {machine['kafka']}{others}, Headwater {machine['commit'] or 'unknown'}; "
        f"median of {results.rounds}{share}."
    )


def print_table(results: Results, found: Sequence[Line], console: Console) -> None:
    """Print the table, with the verdicts in colour."""
    table = Table(title="Headwater and its peers", caption=measured_on(results), caption_justify="left")
    for heading in HEADINGS:
        right = heading in {"Headwater", "peer's", "ratio"}
        table.add_column(heading, justify="right" if right else "left", no_wrap=heading != "work")
    for line in found:
        table.add_row(*cells(line)[:-1], f"[{_COLOURS[line.verdict]}]{line.verdict.value}[/]")
    console.print(table)


def markdown(results: Results, found: Sequence[Line]) -> str:
    """Return the table as Markdown, under the sentence that says where it was measured."""
    rule = tuple("---:" if heading in {"Headwater", "peer's", "ratio"} else "---" for heading in HEADINGS)
    rows = [HEADINGS, rule, *(cells(line) for line in found)]
    return measured_on(results) + "\n\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows)
