"""The broker a test talks to, whichever it is."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

_T = TypeVar("_T")
_serial = itertools.count(1)

HOUR_AGO = int(time.time() - 3_600) * 1_000
"""A timestamp to give to records: older ones would fall to retention while a test looks at them."""


@dataclass(frozen=True)
class Broker:
    """A running broker."""

    name: str
    host: str
    port: int

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"


def unique(prefix: str) -> str:
    """Return a name that no other test uses, since all share one broker."""
    return f"{prefix}-{os.getpid()}-{next(_serial)}"


def eventually(look: Callable[[], _T], until: Callable[[_T], bool], seconds: float = 15) -> _T:
    """Look until what is seen is as wanted; return it, or fail with what was seen last."""
    deadline = time.monotonic() + seconds
    while True:
        seen = look()
        if until(seen):
            return seen
        assert time.monotonic() < deadline, f"after {seconds} s still {seen!r}"
        time.sleep(0.05)
