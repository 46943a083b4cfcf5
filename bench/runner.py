"""Runs the scenarios: round by round, one side after the other, each on a fresh broker and an empty directory."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench.brokers import SIDES, Broker
from bench.results import Results
from bench.scenarios import Scale, Scenario
from headwater.testing.process import ProcessError

Announce = Callable[[str], None]
LOG_TAIL = 2_000


@dataclass(frozen=True)
class Turn:
    """One scenario on one side in one round."""

    scenario: Scenario
    side: str
    round: int


def turns(
    scenarios: Sequence[Scenario], rounds: int, sides: frozenset[str], optional: frozenset[str] = frozenset()
) -> list[Turn]:
    """Return the order of work: within a scenario, round by round, and in each round every side in turn.

    Every other round goes backwards, so that no side always finds the disk as the same other left it.
    `optional` names the scenarios whose optional sides are measured too.
    """
    order = []
    for scenario in scenarios:
        extra = scenario.optional_sides if scenario.name in optional else ()
        chosen = [side for side in (*scenario.sides, *extra) if side in sides]
        for number in range(rounds):
            order += [Turn(scenario, side, number) for side in (chosen[::-1] if number % 2 else chosen)]
    return order


def run(
    order: Sequence[Turn], results: Results, scale: Scale, directory: Path | None, announce: Announce
) -> None:
    """Take every turn, adding to the results what it measured."""
    for done, turn in enumerate(order, start=1):
        began = time.monotonic()
        measured = take(turn, scale, directory)
        results.add(turn.side, measured)
        values = ", ".join(f"{name} {value:.6g}" for name, value in measured.items())
        announce(
            f"[{done}/{len(order)}] {turn.scenario.name}, {turn.side}, round {turn.round + 1}: {values} "
            f"({time.monotonic() - began:.0f} s)"
        )


def take(turn: Turn, scale: Scale, directory: Path | None) -> Mapping[str, float]:
    """Start a fresh broker, do the work on it, and leave nothing of it behind."""
    with tempfile.TemporaryDirectory(prefix=f"bench-{turn.side}-", dir=directory) as name:
        scratch = Path(name) / "scratch"
        scratch.mkdir()
        # Kafka leaves its writing to the operating system: nobody is to pay for what the one before left over.
        os.sync()
        with running(SIDES[turn.side](Path(name))) as broker:
            return turn.scenario.on(turn.side).run(broker, scratch, scale)


@contextmanager
def running(broker: Broker) -> Iterator[Broker]:
    """Start a broker for a block, in which it may be stopped, killed and started again."""
    broker.start()
    try:
        yield broker
    except Exception as error:
        error.add_note(f"The broker's log ended with:\n{broker.errors()[-LOG_TAIL:]}")
        raise
    finally:
        # The data are thrown away, so there is nothing that an orderly stop would save; that it does not run
        # any more is what was wanted.
        with suppress(ProcessError):
            broker.kill()
