"""Prometheus' text format.

The format is small and the values lie ready as integers, so it is written here rather than by
`prometheus_client`: see docs/decisions/0006-metrics-by-hand.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headwater.core.histogram import Histogram

__all__ = ["CONTENT_TYPE", "Labels", "Page"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

Labels = Mapping[str, object]


class Page:
    """The lines of one exposition."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self.omitted = 0
        """Series that were left out because there are too many of them."""

    def family(self, name: str, kind: str, text: str, samples: Iterable[tuple[Labels, float]]) -> None:
        """Write a counter or gauge with a sample for each set of labels."""
        self._head(name, kind, text)
        self._lines += [f"{name}{_labels(labels)} {_number(value)}" for labels, value in samples]

    def counter(self, name: str, text: str, value: float) -> None:
        """Write a counter without labels."""
        self.family(name, "counter", text, [({}, value)])

    def gauge(self, name: str, text: str, value: float) -> None:
        """Write a gauge without labels."""
        self.family(name, "gauge", text, [({}, value)])

    def histogram(self, name: str, text: str, histogram: Histogram) -> None:
        """Write a histogram."""
        self._head(name, "histogram", text)
        for bound, count in histogram.cumulative():
            self._lines.append(f'{name}_bucket{{le="{_number(bound)}"}} {count}')
        self._lines.append(f"{name}_sum {_number(histogram.total)}")
        self._lines.append(f"{name}_count {histogram.count}")

    def encode(self) -> bytes:
        """Return the exposition as it goes over the wire."""
        return "\n".join([*self._lines, ""]).encode()

    def _head(self, name: str, kind: str, text: str) -> None:
        self._lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    pairs = ",".join(f'{name}="{str(value).translate(_ESCAPES)}"' for name, value in labels.items())
    return f"{{{pairs}}}"


def _number(value: float) -> str:
    return "+Inf" if value == float("inf") else repr(value)
