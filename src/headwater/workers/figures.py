"""The figures of workers, one sample for each, as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, Literal, NamedTuple

from headwater.core.exposition import Page
from headwater.workers.worker import P

__all__ = ["Figure", "exposition"]


class Figure(NamedTuple, Generic[P]):
    """What is told of each worker."""

    name: str
    kind: Literal["counter", "gauge"]
    text: str
    value: Callable[[P], float]


def exposition(label: str, figures: Iterable[Figure[P]], progress: Mapping[str, P]) -> bytes:
    """Return the figures of workers, by name; `label` is what the name is one of."""
    page = Page()
    for figure in figures:
        samples = [({label: name}, figure.value(each)) for name, each in progress.items()]
        page.family(figure.name, figure.kind, figure.text, samples)
    return page.encode()
