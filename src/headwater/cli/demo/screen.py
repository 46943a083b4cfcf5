"""How the demo looks: a live panel on a terminal, a line a second anywhere else."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from headwater.cli.demo.figures import Figures, Flow

_BARS = "▁▂▃▄▅▆▇█"
_HISTORY = 60


class Screen(Protocol):
    """Something that shows the figures as they come."""

    def show(self, figures: Figures) -> None:
        """Show the figures of this moment."""
        ...

    def close(self) -> None:
        """Leave the terminal as it was."""
        ...


class LineScreen:
    """One line each time, for a pipe or a file."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def show(self, figures: Figures) -> None:
        """Print the figures as one line."""
        self._console.print(line(figures), soft_wrap=True, highlight=False)

    def close(self) -> None:
        """Do nothing: every line is whole."""


class PanelScreen:
    """A panel that is drawn over and over."""

    def __init__(self, console: Console, title: str) -> None:
        self._title = title
        self._history: deque[float] = deque(maxlen=_HISTORY)
        self._live = Live(console=console, auto_refresh=False)
        self._live.start()

    def show(self, figures: Figures) -> None:
        """Draw the panel anew."""
        self._history.append(figures.consumed.records_per_second)
        self._live.update(panel(figures, self._title, list(self._history)), refresh=True)

    def close(self) -> None:
        """Leave the last panel, and the cursor below it."""
        self._live.stop()


def open_screen(console: Console, title: str) -> Screen:
    """Return the screen that fits where the console writes to."""
    return PanelScreen(console, title) if console.is_terminal else LineScreen(console)


def panel(figures: Figures, title: str, history: list[float]) -> Panel:
    """Return the figures as a panel, with the consumer's rate of the last minute below them."""
    flows = Table.grid(padding=(0, 3))
    flows.add_column(style="bold")
    for _ in range(3):
        flows.add_column(justify="right", min_width=12)
    flows.add_row("", *(Text(heading, style="dim") for heading in ("records/s", "MB/s", "records")))
    for name, flow, style in (("in", figures.produced, "cyan"), ("out", figures.consumed, "green")):
        rate = f"{flow.records_per_second:,.0f}"
        flows.add_row(
            name, Text(rate, style=f"bold {style}"), _megabytes(flow.bytes_per_second), f"{flow.records:,}"
        )

    rest = Table.grid(padding=(0, 3))
    rest.add_column(style="bold")
    rest.add_column()
    rest.add_row("latency", f"p50 {_ms(figures.p50_ms)}   p99 {_ms(figures.p99_ms)}   producer to consumer")
    rest.add_row("lag", f"{figures.lag:,} records")
    if figures.broker is not None:
        usage = figures.broker
        rest.add_row("broker", f"{usage.resident_bytes / 1e6:,.0f} MB resident   {usage.cpu:.0%} of a core")
    if failed := _failed(figures):
        rest.add_row("failed", Text(f"{failed:,} records", style="bold red"))
    chart = Text(sparkline(history), style="green")
    return Panel(
        Group(flows, "", rest, "", chart),
        title=Text(title, style="bold"),
        subtitle=Text(f"{figures.seconds:,.0f} s, Ctrl-C ends it", style="dim"),
        padding=(1, 2),
        expand=False,
        width=72,
    )


def line(figures: Figures) -> str:
    """Return the figures as one line."""
    words = [f"{figures.seconds:5.0f} s", _flow("in", figures.produced), _flow("out", figures.consumed)]
    words.append(f"p50 {_ms(figures.p50_ms)} p99 {_ms(figures.p99_ms)}")
    words.append(f"total {figures.consumed.records:,} lag {figures.lag:,}")
    if figures.broker is not None:
        usage = figures.broker
        words.append(f"broker {usage.resident_bytes / 1e6:,.0f} MB {usage.cpu:.0%} CPU")
    if failed := _failed(figures):
        words.append(f"failed {failed:,}")
    return " | ".join(words)


def sparkline(values: list[float]) -> str:
    """Return values as a row of bars, the highest of them being full."""
    top = max(values, default=0.0)
    if top <= 0:
        return _BARS[0] * len(values)
    return "".join(_BARS[round(value / top * (len(_BARS) - 1))] for value in values)


def _flow(name: str, flow: Flow) -> str:
    return f"{name} {flow.records_per_second:,.0f} records/s {_megabytes(flow.bytes_per_second)} MB/s"


def _failed(figures: Figures) -> int:
    return figures.produced.failed + figures.consumed.failed


def _megabytes(size: float) -> str:
    return f"{size / 1e6:,.1f}"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f} ms"
