"""What went wrong in a query, in one sentence out of the pages that Spark says about it."""

from __future__ import annotations

import os
import re
import sysconfig
from pathlib import Path

__all__ = ["sentence"]

_LONGEST = 600
_PREFIXES = (
    re.compile(r"^\[STREAM_FAILED\] Query \[[^\]]*\] terminated with exception: "),
    re.compile(r"^(?:\w+\.)+\w*(?:Exception|Error): (?=\S)"),
    re.compile(
        r"^Job aborted due to stage failure: Task .*? in stage .*?, most recent failure: Lost task [^:]*: "
    ),
)
_PYTHON = re.compile(r"^(?:pyspark\.errors\.|headwater\.|builtins\.)?(?:\w+\.)*(\w+): (.*)$")
_OURS = ("headwater.",)
_SPARKS = ("pyspark.", "py4j.")
_FRAME = re.compile(r'^ +File "(.*)", line (\d+), in ')
# Whose lines nobody has to correct: Python's own, what is installed, Spark's (from an archive too) and ours.
_LIBRARIES = (
    *(f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "purelib", "platlib")),
    f"{Path(__file__).parents[1]}{os.sep}",
    f"{os.sep}pyspark{os.sep}",
)


def sentence(error: BaseException) -> str:
    """Return the reason, without Spark's plan, stacks and ids.

    >>> sentence(RuntimeError("[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: no space"))
    'no space'
    """
    text = str(error).strip()
    reason = _without_codes(_from_python(text) or _first_line(text)) or type(error).__name__
    return reason if len(reason) <= _LONGEST else reason[: _LONGEST - 1] + "…"


def _from_python(text: str) -> str | None:
    """Return how the last Python traceback in `text` ends: the innermost error that was not handled."""
    _, found, traceback = text.rpartition("Traceback (most recent call last):")
    if not found:
        return None
    where = ""
    for line in traceback.splitlines()[1:]:
        if (frame := _FRAME.match(line)) and not any(each in frame[1] for each in _LIBRARIES):
            where = f"{_as_seen_from_here(frame[1])}:{frame[2]}: "
        if line and not line.startswith((" ", "\t")):
            ending = _PYTHON.match(line.strip())
            if ending is None:
                return where + line.strip()
            # Our own errors name the thing and the way out; for others the class is half of what they say.
            if line.startswith(_OURS):
                return ending[2]
            # What Spark raises is of a query, and not of the line that had it run.
            return f"{'' if line.startswith(_SPARKS) else where}{ending[1]}: {ending[2]}"
    return None


def _as_seen_from_here(path: str) -> str:
    """Return a path as somebody in this directory would write it."""
    return path.removeprefix(f"{Path.cwd()}{os.sep}")


def _first_line(text: str) -> str:
    line = text.splitlines()[0] if text else ""
    for prefix in _PREFIXES:
        line = prefix.sub("", line)
    return line


def _without_codes(line: str) -> str:
    """Return what is said without the state of SQL's, and without the name for what a pipeline itself has raised."""
    said = re.sub(r" SQLSTATE: \w+$", "", line.strip().rstrip(";"))
    return re.sub(r"^(?:\w+: )?\[USER_RAISED_EXCEPTION\] ", "", said).strip()
