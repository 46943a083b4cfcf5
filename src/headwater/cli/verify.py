"""`headwater topics verify`: every batch on disk, checked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwater.cli.output import json_option, print_json, print_table, wants_json

if TYPE_CHECKING:
    from headwater.log.verify import Finding, Progress, SegmentFile


@dataclass
class Totals:
    """What a check went through, and what it found."""

    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)

    def add(self, progress: Progress) -> None:
        """Count what was checked."""
        self.bytes += progress.bytes
        self.batches += progress.batches
        self.records += progress.records


@click.command("verify")
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default="./headwater-data",
    show_default=True,
    metavar="DIR",
    help="The directory of the log; a broker may be running on it.",
)
@click.option(
    "--archive",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="The broker's headwater.archive.dir, to check what has moved there as well.",
)
@click.argument("topic", required=False)
@json_option
@click.pass_context
def verify_command(
    ctx: click.Context, data: Path, archive: Path | None, topic: str | None, as_json: bool
) -> None:
    """Check every batch on disk: checksums, offsets, and that the indexes agree.

    Nothing is changed. Ends with status 1 when anything is damaged. A torn tail, which the next start
    cuts off, is reported and is no damage: nothing in it was ever acknowledged. Nor is what the journal has and
    the next start writes.
    """
    from headwater.log import verify as checks

    with checks.hold(data) as is_ours:
        segments = checks.segments(data, topic, live=not is_ours, archive=archive)
        if archive is None and (moved := checks.in_archive(data, topic)):
            click.echo(f"Not checked: {moved} segments in the archive; give --archive for them.", err=True)
        if topic is not None and not segments and not any((data / "topics").glob(f"{topic}.*")):
            raise click.ClickException(f"{data} holds no topic named {topic}")
        as_json = wants_json(as_json)
        totals = _check(segments, quiet=as_json)
    if as_json:
        print_json(_document(totals, is_running=not is_ours))
    else:
        _print(totals, is_running=not is_ours)
    mended = (checks.Kind.TORN, checks.Kind.JOURNAL)  # by the next start
    if any(finding.kind not in mended for finding in totals.findings):
        ctx.exit(1)


def _check(segments: list[SegmentFile], *, quiet: bool) -> Totals:
    from headwater.log.verify import Progress, verify

    totals = Totals(segments=len(segments))
    began = time.monotonic()
    sizes = [_size(segment.path) for segment in segments]
    with _bar(sum(sizes), quiet=quiet) as show:
        for segment in segments:
            for item in verify(segment):
                if isinstance(item, Progress):
                    totals.add(item)
                    show(f"{segment.topic}-{segment.partition}", totals.bytes)
                else:
                    totals.findings.append(item)
    totals.seconds = time.monotonic() - began
    return totals


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


@contextmanager
def _bar(total: int, *, quiet: bool) -> Iterator[Callable[[str, int], None]]:
    if quiet:
        yield lambda where, done: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda where, done: bar.update(task, completed=done, description=where)


def _rows(findings: list[Finding]) -> list[dict[str, Any]]:
    return [
        {
            "kind": str(finding.kind),
            "topic": finding.topic,
            "partition": finding.partition,
            "first_offset": finding.first_offset,
            "last_offset": finding.next_offset - 1 if finding.next_offset > finding.first_offset else None,
            "file": finding.file,
            "position": finding.position,
            "bytes": finding.end - finding.position,
        }
        for finding in findings
    ]


def _document(totals: Totals, *, is_running: bool) -> dict[str, Any]:
    return {
        "segments": totals.segments,
        "batches": totals.batches,
        "records": totals.records,
        "bytes": totals.bytes,
        "seconds": round(totals.seconds, 3),
        "broker_running": is_running,
        "findings": _rows(totals.findings),
    }


def _print(totals: Totals, *, is_running: bool) -> None:
    if totals.findings:
        columns = ["kind", "topic", "partition", "first_offset", "last_offset", "file", "position", "bytes"]
        print_table(_rows(totals.findings), columns)
    rate = totals.bytes / totals.seconds / 1e9 if totals.seconds else 0.0
    verdict = f"{len(totals.findings)} findings" if totals.findings else "all is well"
    beside = ", beside a running broker" if is_running else ""
    click.echo(
        f"Checked {totals.records:,} records in {totals.batches:,} batches of {totals.segments:,} segments: "
        f"{totals.bytes / 1e9:.3f} GB in {totals.seconds:.2f} s ({rate:.2f} GB/s){beside}: {verdict}."
    )
