"""Places where a process may die, by name, so that a test can make it die there.

With `HEADWATER_KILL_AT=topic.after_commit:2` in the environment, the process that passes the boundary
`topic.after_commit` for the second time kills itself with SIGKILL. Several are told apart by commas. Without it
nothing happens.

A process may start others, which inherit the environment. Where `HEADWATER_KILLED` names a directory, the process that
dies leaves a file there, with the name of its boundary, and no other process dies at that one after it.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

__all__ = ["boundary"]

_passed: Counter[str] = Counter()


def boundary(name: str) -> None:
    """Die here if a test asked for it."""
    wanted = os.environ.get("HEADWATER_KILL_AT")
    if wanted is None:
        return
    places = (place.partition(":") for place in wanted.split(","))
    times = {named: int(times or 1) for named, _, times in places}
    if name in times:
        _passed[name] += 1
        if _passed[name] == times[name] and _is_first(name):
            os.kill(os.getpid(), signal.SIGKILL)


def _is_first(name: str) -> bool:
    left = os.environ.get("HEADWATER_KILLED")
    if left is None:
        return True
    try:
        os.close(os.open(Path(left, name), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True
