"""Places where a process may die, by name, so that a test can make it die there.

With `HEADWATER_KILL_AT=topic.after_commit:2` in the environment, the process that passes the boundary
`topic.after_commit` for the second time kills itself with SIGKILL. Without it nothing happens.

A process may start others, which inherit the environment. Where `HEADWATER_KILLED` names a file, the
process that dies leaves it behind, and no other process dies after it.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

__all__ = ["boundary"]

_passed: Counter[str] = Counter()


def boundary(name: str) -> None:
    """Die here if a test asked for it."""
    wanted = os.environ.get("HEADWATER_KILL_AT")
    if wanted is None:
        return
    named, _, times = wanted.partition(":")
    if named == name:
        _passed[name] += 1
        if _passed[name] == int(times or 1) and _is_first():
            os.kill(os.getpid(), signal.SIGKILL)


def _is_first() -> bool:
    left = os.environ.get("HEADWATER_KILLED")
    if left is None:
        return True
    try:
        os.close(os.open(left, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True
