"""What went wrong in a query, in one sentence out of the pages that Spark says about it."""

from __future__ import annotations

import re

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
    for line in traceback.splitlines()[1:]:
        if line and not line.startswith((" ", "\t")):
            ending = _PYTHON.match(line.strip())
            if ending is None:
                return line.strip()
            # Our own errors name the thing and the way out; for others the class is half of what they say.
            return ending[2] if line.startswith(_OURS) else f"{ending[1]}: {ending[2]}"
    return None


def _first_line(text: str) -> str:
    line = text.splitlines()[0] if text else ""
    for prefix in _PREFIXES:
        line = prefix.sub("", line)
    return line


def _without_codes(line: str) -> str:
    """Return what is said without the state of SQL's, and without the name for what a pipeline itself has raised."""
    said = re.sub(r" SQLSTATE: \w+$", "", line.strip().rstrip(";"))
    return re.sub(r"^(?:\w+: )?\[USER_RAISED_EXCEPTION\] ", "", said).strip()
