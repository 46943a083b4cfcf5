"""Events folded into state: by a plain class, or by a function.

A class starts as `Account()` and has a method for each type of event, `on_money_deposited(event)` for
`MoneyDeposited`, or one `apply(event)` for all. It changes the object, or returns the next one. A function
takes (state, event) and returns the next state.

Snapshots are states as JSON, of which a fold is to say how unless JSON holds them anyway. Each carries a
fingerprint of the code that made it: when the code changes, the snapshots of the old one are not used.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections.abc import Callable, Iterable
from types import CodeType
from typing import Any

from headwater.events.errors import BadEvent
from headwater.events.event import Event
from headwater.events.upcasting import Upcasters

__all__ = ["Fold", "fingerprint"]

_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[^A-Za-z0-9]+")


class Fold:
    """How the events of a stream become its state.

    >>> total = Fold(lambda total, event: total + event.data["amount"], initial=0)
    >>> total.over([Event("ann", 1, "Deposited", {"amount": 3}, "e1", 0)])
    3
    """

    def __init__(
        self,
        by: type[Any] | Callable[[Any, Event], Any],
        *,
        initial: Any = None,
        upcasters: Upcasters | None = None,
        snapshot_every: int | None = None,
        snapshot_version: int = 1,
        dump: Callable[[Any], Any] | None = None,
        load: Callable[[Any], Any] | None = None,
    ) -> None:
        self.name = by.__qualname__
        self.snapshot_every = snapshot_every
        self._by = by
        self._initial = initial
        self._upcasters = upcasters
        self._dump = dump
        self._load = load
        self._methods: dict[str, str] = {}
        self.fingerprint = fingerprint(
            f"{self.name} {snapshot_version} {_steady(initial)}", [by, *_functions(upcasters)]
        )

    def start(self) -> Any:
        """Return the state of a stream without events."""
        return self._by() if isinstance(self._by, type) else self._initial

    def step(self, state: Any, event: Event) -> Any:
        """Return the state after an event, which is brought up to date first."""
        if self._upcasters is not None:
            event = self._upcasters(event)
        if not isinstance(self._by, type):
            return self._by(state, event)
        following = getattr(state, self._method(state, event))(event)
        return state if following is None else following

    def over(self, events: Iterable[Event], state: Any = None) -> Any:
        """Return the state after events, from a state or from the start."""
        state = self.start() if state is None else state
        for event in events:
            state = self.step(state, event)
        return state

    def dump(self, state: Any) -> str:
        """Return a state as JSON; raise `BadEvent` where JSON would bring back another."""
        plain = self._dump(state) if self._dump else _plain(state)
        try:
            text = json.dumps(plain, ensure_ascii=False, allow_nan=False)
            same = json.loads(text) == plain
        except (TypeError, ValueError, RecursionError):
            same = False
        if not same:
            raise BadEvent(
                f"a snapshot of {self.name} would not bring its state back: keep to what JSON has, or give "
                "dump and load"
            )
        return text

    def load(self, text: str) -> Any:
        """Return the state that `dump` wrote."""
        plain = json.loads(text)
        if self._load is not None:
            return self._load(plain)
        if not isinstance(self._by, type):
            return plain
        state: Any = object.__new__(self._by)
        for name, value in plain.items():
            object.__setattr__(state, name, value)  # a frozen dataclass has no other way
        return state

    def _method(self, state: Any, event: Event) -> str:
        name = self._methods.get(event.type)
        if name is None:
            name = (
                "apply" if hasattr(state, "apply") else f"on_{_WORD.sub('_', event.type).lower().strip('_')}"
            )
            if not callable(getattr(state, name, None)):
                raise BadEvent(
                    f"{self.name} has no method {name}(event) for the event {event.type} of {event.stream}: "
                    "add one, which may do nothing"
                )
            self._methods[event.type] = name
        return name


def _plain(state: Any) -> Any:
    return vars(state) if hasattr(state, "__dict__") else state


def _functions(upcasters: Upcasters | None) -> list[Callable[..., Any]]:
    return [] if upcasters is None else list(upcasters.functions())


def fingerprint(name: str, parts: Iterable[Any]) -> str:
    """Return a text that changes with the code of functions and classes, but not with what these call."""
    digest = hashlib.sha256(name.encode())
    for part in parts:
        members = [part]
        if isinstance(part, type):
            members = [member for kind in part.__mro__[:-1] for _, member in sorted(vars(kind).items())]
        for member in members:
            function = inspect.unwrap(getattr(member, "__func__", member)) if callable(member) else member
            if code := getattr(function, "__code__", None):
                _add_code(digest, code)
    return digest.hexdigest()[:16]


def _add_code(digest: Any, code: CodeType) -> None:
    digest.update(code.co_code)
    digest.update(repr((code.co_name, code.co_names, code.co_varnames)).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _add_code(digest, constant)
        else:
            digest.update(_steady(constant).encode())


def _steady(value: object) -> str:
    """Return a text for a constant or an initial state that is the same in every process."""
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(_steady, value)))}}}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_steady, value))})"
    text = repr(value)
    return type(value).__qualname__ if " at 0x" in text else text
