"""Results in a file, on the terminal and in Markdown."""

from __future__ import annotations

import doctest
import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

import bench.machine
import bench.report
import bench.scenarios.base
from bench.__main__ import FIGURES, main
from bench.figures import HEADWATER, KAFKA, AtMost, Better, Figure, Limit
from bench.machine import this_machine
from bench.report import HEADINGS, markdown, print_table
from bench.results import Results, ResultsError
from bench.scenarios.memory import LARGEST, SMALLEST, write_payloads

CPU = Figure("cpu", "CPU", "s", Better.LOWER, (AtMost(0.5),))
READY = Figure("ready", "ready after start", "s", Better.LOWER, (Limit(0.5, "s"),))
OTHER = Figure("other", "not measured", "s", Better.LOWER)


@pytest.fixture
def results() -> Results:
    found = Results(this_machine().as_dict(), rounds=2, divisor=5)
    found.add(KAFKA, {"cpu": 2.0, "ready": 3.6})
    found.add(HEADWATER, {"cpu": 0.5, "ready": 0.75})
    found.add(KAFKA, {"cpu": 4.0, "ready": 3.8})
    found.add(HEADWATER, {"cpu": 0.7, "ready": 0.65})
    return found


@pytest.mark.parametrize("module", [bench.report, bench.machine, bench.scenarios.base])
def test_examples(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


def test_results_are_read_as_they_were_written(results: Results, tmp_path: Path) -> None:
    file = tmp_path / "results" / "one.json"
    results.write(file)
    assert Results.read(file) == results


@pytest.mark.parametrize("content", ["", "[]", "{}", json.dumps({"format": 99})])
def test_a_file_that_holds_no_results_is_refused(content: str, tmp_path: Path) -> None:
    file = tmp_path / "one.json"
    file.write_text(content)
    with pytest.raises(ResultsError, match=r"one\.json"):
        Results.read(file)


def test_markdown_has_a_row_for_each_target_that_was_measured(results: Results) -> None:
    text = markdown(results, results.lines([CPU, OTHER, READY]))
    sentence, _, *rows = text.splitlines()
    assert sentence.startswith("Measured on 20")
    assert sentence.endswith("median of 2, with 1/5 of the work.")
    assert rows[0] == f"| {' | '.join(HEADINGS)} |"
    assert rows[2:] == [
        "| CPU | s | 0.60 | kafka | 3.00 | 0.20× | ≤ 0.5× kafka | met |",
        "| ready after start | s | 0.70 | kafka | 3.70 | 0.19× | ≤ 0.5 s | missed |",
    ]


def test_the_table_shows_both_sides_and_the_verdict(results: Results) -> None:
    stream = io.StringIO()
    print_table(results, results.lines([CPU, READY]), Console(file=stream, width=160))
    row = next(line for line in stream.getvalue().splitlines() if "ready after start" in line)
    assert [cell.strip() for cell in row.strip("│").split("│")][2:] == [
        "0.70",
        "kafka",
        "3.70",
        "0.19×",
        "≤ 0.5 s",
        "missed",
    ]


def test_the_command_prints_a_file_of_results_as_markdown(results: Results, tmp_path: Path) -> None:
    file = tmp_path / "one.json"
    results.write(file)
    done = CliRunner().invoke(main, [f"--markdown={file}"])
    assert done.exit_code == 0
    # Of the figures of this fixture, only `ready` is one of the benchmark's own.
    assert done.output == markdown(results, results.lines(FIGURES))
    assert "| ready after start | s | 0.70 |" in done.output


def test_the_command_refuses_to_measure_nobody() -> None:
    done = CliRunner().invoke(main, ["--ours-only", "--peer-only"])
    assert done.exit_code == 2
    assert "nobody" in done.output


def test_payloads_are_the_same_every_time_and_within_their_sizes(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    mean = write_payloads(first, count=50)
    assert write_payloads(second, count=50) == mean
    assert first.read_text() == second.read_text()
    sizes = [len(line) for line in first.read_text().splitlines()]
    assert len(sizes) == 50
    assert all(SMALLEST <= size <= LARGEST for size in sizes)
    assert sum(sizes) // 50 == mean
