"""Commands on event-sourced accounts: Headwater's event store beside the eventsourcing library on SQLite."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self

from bench.brokers import Broker
from bench.figures import EVENTSOURCING, HEADWATER, AtLeast, Better, Figure
from bench.scenarios.base import Scale, Scenario

CALLERS = 50
COMMANDS = 40_000
ALONE = 4_000
SECONDS = 600.0


class EventsAppend(Scenario):
    """Each command is one event, and its caller waits until it is on the disk."""

    name = "events-append"
    figures = (
        Figure(
            "event-appends",
            f"event-sourced commands, {CALLERS} callers",
            "commands/s",
            Better.HIGHER,
            (AtLeast(2.0, EVENTSOURCING),),
        ),
        Figure(
            "event-appends-alone",
            "event-sourced commands, one caller",
            "commands/s",
            Better.HIGHER,
            peer=EVENTSOURCING,
        ),
    )
    sides: ClassVar[tuple[str, ...]] = (EVENTSOURCING, HEADWATER)

    def __init__(self, side: str = HEADWATER) -> None:
        self.side = side

    def on(self, side: str) -> Self:
        """Return the scenario for one side."""
        return type(self)(side)

    def run(self, broker: Broker, scratch: Path, scale: Scale) -> Mapping[str, float]:
        """Let many callers work at once, then one, each time in a process of its own."""
        together = self._rate(broker, scratch / "together", CALLERS, scale.of(COMMANDS))
        alone = self._rate(broker, scratch / "alone", 1, scale.of(ALONE))
        return {"event-appends": together, "event-appends-alone": alone}

    def _rate(self, broker: Broker, directory: Path, callers: int, commands: int) -> float:
        directory.mkdir()
        command = [sys.executable, "-m", "bench.event_appends", self.side, broker.bootstrap, str(directory)]
        done = subprocess.run(
            [*command, str(callers), str(commands)],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=SECONDS,
        )
        return float(done.stdout)
