"""Schema evolution: old events in the form that today's code expects.

What is stored never changes. An event carries the number of its schema; an upcaster takes its data from one
number to the next when it is read, in aggregates and in projections alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from headwater.events.errors import UpcastError
from headwater.events.event import Event

__all__ = ["Upcasters"]

Upcast = Callable[[dict[str, Any]], Mapping[str, Any]]


class Upcasters:
    """The upcasters of an application, by type and schema.

    >>> upcasters = Upcasters()
    >>> @upcasters.add("Deposited", schema=1)
    ... def in_cents(data):
    ...     return {"cents": data["euros"] * 100}
    >>> old = Event("ann", 1, "Deposited", {"euros": 5}, "e1", 0)
    >>> upcasters(old).data, upcasters(old).schema
    ({'cents': 500}, 2)
    """

    def __init__(self) -> None:
        self._steps: dict[tuple[str, int], tuple[Upcast, str]] = {}
        self._newest: dict[str, int] = {}

    def add(self, type: str, *, schema: int, rename: str | None = None) -> Callable[[Upcast], Upcast]:
        """Declare a function that takes the data of a type from a schema to the next.

        With `rename`, the event has that type from there on, and goes on at the same number.
        """

        def declare(function: Upcast) -> Upcast:
            if (type, schema) in self._steps:
                raise UpcastError(f"{type} has an upcaster for schema {schema} already: keep one of them")
            if schema < 1:
                raise UpcastError(f"{type}: schemas are counted from 1 on, so there is no schema {schema}")
            target = rename or type
            self._steps[type, schema] = (function, target)
            self._newest[target] = max(self._newest.get(target, 1), schema + 1)
            return function

        return declare

    def newest(self, type: str) -> int:
        """Return the schema that new events of a type have."""
        return self._newest.get(type, 1)

    def functions(self) -> list[Upcast]:
        """Return the upcasters, in a fixed order."""
        return [self._steps[step][0] for step in sorted(self._steps)]

    def __call__(self, event: Event) -> Event:
        """Return an event in its newest form."""
        kind, schema, data = event.type, event.schema, event.data
        while (step := self._steps.get((kind, schema))) is not None:
            function, kind = step
            data = self._apply(function, event, data)
            schema += 1
        if schema > self.newest(kind):
            raise UpcastError(
                f"{kind}, version {event.version} of {event.stream}, has schema {schema}, and this "
                f"application knows {self.newest(kind)}: run a newer version of it"
            )
        if schema < self.newest(kind):
            raise UpcastError(f"{kind} has no upcaster from schema {schema}: add one")
        return event if schema == event.schema else replace(event, type=kind, schema=schema, data=data)

    def _apply(self, function: Upcast, event: Event, data: dict[str, Any]) -> dict[str, Any]:
        try:
            return dict(function(dict(data)))
        except Exception as error:
            raise UpcastError(
                f"the upcaster {function.__name__} fails on {event.type}, version {event.version} of "
                f"{event.stream}: {type(error).__name__}: {error}"
            ) from error
