"""The demo's rates, percentiles and how they look."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from headwater.cli.demo.clients import made_ns, order
from headwater.cli.demo.figures import WINDOW_SECONDS, Figures, Flow, FlowMeter, Meter, Percentiles, Usage
from headwater.cli.demo.screen import LineScreen, PanelScreen, line, open_screen, panel, sparkline


def test_a_rate_is_of_the_window_only() -> None:
    meter = Meter()
    total = 0.0
    for second in range(100):
        total += 1000 if second > 50 else 5
        meter.add(float(second), total)
    assert meter.rate() == 1000


def test_a_rate_needs_two_moments() -> None:
    meter = Meter()
    assert meter.rate() == 0
    meter.add(1.0, 100)
    assert meter.rate() == 0
    meter.add(1.0, 200)
    assert meter.rate() == 0


@given(st.lists(st.tuples(st.floats(0.01, 10), st.integers(0, 10**6)), min_size=2, max_size=50))
def test_a_rate_lies_between_the_slowest_and_the_fastest(steps: list[tuple[float, int]]) -> None:
    meter = Meter()
    at = total = 0.0
    meter.add(at, total)
    for seconds, records in steps:
        at, total = at + seconds, total + records
        meter.add(at, total)
    rates = [records / seconds for seconds, records in steps]
    assert min(rates) * 0.999 <= meter.rate() <= max(rates) * 1.001


def test_flow() -> None:
    meter = FlowMeter()
    meter.add(0.0, 0, 0, 0)
    meter.add(2.0, 2000, 200_000, 1)
    assert meter.flow() == Flow(1000.0, 100_000.0, 2000, 200_000, 1)


def test_percentiles_are_of_the_window_only() -> None:
    percentiles = Percentiles()
    assert percentiles.at(0.5, 0.99) == [None, None]
    percentiles.add(0.0, [1e6] * 100)
    percentiles.add(WINDOW_SECONDS, [float(n) for n in range(100)])
    assert percentiles.at(0.0, 0.5, 0.99, 1.0) == [0, 50, 99, 99]


def test_an_order_knows_when_it_was_made() -> None:
    first, second = order(1), order(2)
    assert made_ns(first) <= made_ns(second)
    assert 90 <= len(first) <= 130


FIGURES = Figures(
    12.3,
    produced=Flow(20_000.4, 2_140_000.0, 246_000, 26_000_000),
    consumed=Flow(19_999.6, 2_130_000.0, 245_900, 25_900_000),
    p50_ms=6.12,
    p99_ms=1234.5,
    lag=100,
    broker=Usage(cpu=0.123, resident_bytes=48_000_000),
)


def test_line() -> None:
    assert line(FIGURES) == (
        "   12 s | in 20,000 records/s 2.1 MB/s | out 20,000 records/s 2.1 MB/s"
        " | p50 6.1 ms p99 1,234.5 ms | total 245,900 lag 100 | broker 48 MB 12% CPU"
    )


def test_line_of_the_first_moment_and_of_failures() -> None:
    first = Figures(0.0, produced=Flow(failed=2), consumed=Flow(failed=1))
    assert line(first).endswith("p50 - p99 - | total 0 lag 0 | failed 3")


def test_panel_shows_every_figure() -> None:
    console = Console(file=io.StringIO(), width=100)
    with console.capture() as capture:
        console.print(panel(FIGURES, "orders at [::1]:9092", [1.0, 2.0]))
    text = capture.get()
    for figure in (
        "orders at [::1]:9092",
        "20,000",
        "246,000",
        "6.1 ms",
        "1,234.5 ms",
        "100 records",
        "48 MB",
    ):
        assert figure in text
    assert "failed" not in text


@pytest.mark.parametrize(
    ("values", "bars"),
    [([], ""), ([0, 0], "▁▁"), ([1, 4, 8], "▂▅█"), ([5], "█")],
)
def test_sparkline(values: list[float], bars: str) -> None:
    assert sparkline(values) == bars


def test_the_screen_fits_the_output() -> None:
    assert isinstance(open_screen(Console(file=io.StringIO()), "demo"), LineScreen)
    screen = open_screen(Console(file=io.StringIO(), force_terminal=True), "demo")
    try:
        assert isinstance(screen, PanelScreen)
        screen.show(FIGURES)
    finally:
        screen.close()
