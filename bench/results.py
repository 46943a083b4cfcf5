"""What a run measured: kept round by round, written as JSON, and read again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.figures import Figure, Line, lines
from headwater.core.errors import HeadwaterError

FORMAT = 1


class ResultsError(HeadwaterError):
    """A file that holds no results, or results of another format."""


@dataclass
class Results:
    """The samples of each figure on each side, with the facts that they depend on."""

    machine: Mapping[str, str | int | float]
    rounds: int
    divisor: int
    samples: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, side: str, measured: Mapping[str, float]) -> None:
        """Add what one round measured on one side."""
        for name, value in measured.items():
            self.samples.setdefault(name, {}).setdefault(side, []).append(value)

    def lines(self, figures: Iterable[Figure]) -> list[Line]:
        """Return the lines of the figures that were measured, in the order of the figures."""
        return [
            line
            for figure in figures
            if figure.name in self.samples
            for line in lines(figure, self.samples[figure.name])
        ]

    def write(self, file: Path) -> None:
        """Write the results as JSON, making the directory."""
        file.parent.mkdir(parents=True, exist_ok=True)
        content = {
            "format": FORMAT,
            "machine": dict(self.machine),
            "rounds": self.rounds,
            "divisor": self.divisor,
            "samples": self.samples,
        }
        file.write_text(json.dumps(content, indent=2) + "\n")

    @classmethod
    def read(cls, file: Path) -> Results:
        """Read results that were written."""
        try:
            content = json.loads(file.read_text())
            if content["format"] != FORMAT:
                raise ResultsError(f"{file} has format {content['format']}; this reads format {FORMAT}")
            return cls(content["machine"], content["rounds"], content["divisor"], content["samples"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ResultsError(f"{file} holds no results of a benchmark: {error}") from error
