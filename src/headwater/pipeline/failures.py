"""What went wrong in a query, in one sentence out of the pages that Spark says about it."""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from pathlib import Path

__all__ = ["place", "sentence"]

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
_CAUSE = re.compile(r"^(?:Caused by)?: (?:\w+[.$])+\w+: (\S.*)$", re.MULTILINE)
_WORKER_GONE = "Python worker exited unexpectedly"


def sentence(error: BaseException) -> str:
    """Return the reason, without Spark's plan, stacks and ids.

    >>> sentence(RuntimeError("[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: no space"))
    'no space'
    """
    text = str(error).strip()
    reason = _without_codes(_from_python(text) or _first_line(text)) or type(error).__name__
    return reason if len(reason) <= _LONGEST else reason[: _LONGEST - 1] + "…"


def place(error: BaseException) -> str:
    """Return the file and line of the application that led to an error; nothing where there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    return next((found for frame in reversed(frames) if (found := _place(frame.filename, frame.lineno))), "")


def _from_python(text: str) -> str | None:
    """Return how the last Python traceback in `text` ends: the innermost error that was not handled."""
    _, found, stack = text.rpartition("Traceback (most recent call last):")
    if not found:
        return None
    where = ""
    for line in stack.splitlines()[1:]:
        if frame := _FRAME.match(line):
            here = _place(frame[1], frame[2])
            where = f"{here}: " if here else where
        if line and not line.startswith((" ", "\t")):
            ending = _PYTHON.match(line.strip())
            if ending is None:
                return where + line.strip()
            if ending[1] == "Py4JJavaError":  # it names the call; the reasons follow
                return _from_java(stack) or f"{ending[1]}: {ending[2]}"
            # Our own errors name the thing and the way out; for others the class is half of what they say.
            if line.startswith(_OURS):
                return ending[2]
            # What Spark raises is of a query, and not of the line that had it run.
            return f"{'' if line.startswith(_SPARKS) else where}{ending[1]}: {ending[2]}"
    return None


def _place(path: str, line: object) -> str:
    """Return a line as somebody in this directory would name it; nothing for one that is not the application's."""
    if any(each in path for each in _LIBRARIES):
        return ""
    return f"{path.removeprefix(f'{Path.cwd()}{os.sep}')}:{line}"


def _from_java(stack: str) -> str | None:
    """Return what the innermost cause of a Java exception says that says anything."""
    causes = _CAUSE.findall(stack)
    if any(_WORKER_GONE in cause for cause in causes):
        return "a Python worker is gone: it crashed, or was killed, as the kernel does where memory runs out"
    return _first_line(causes[-1]) if causes else None


def _first_line(text: str) -> str:
    line = text.splitlines()[0] if text else ""
    for prefix in _PREFIXES:
        line = prefix.sub("", line)
    return line


def _without_codes(line: str) -> str:
    """Return what is said without the state of SQL's, and without the name for what a pipeline itself has raised."""
    said = re.sub(r" SQLSTATE: \w+$", "", line.strip().rstrip(";"))
    return re.sub(r"^(?:\w+: )?\[USER_RAISED_EXCEPTION\] ", "", said).strip()
