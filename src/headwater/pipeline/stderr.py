"""What the JVM and the Python processes below it write to stderr, without what they say in normal running.

Java warns at each start of a module that Spark's scripts always ask for; a process that Spark starts for keyed state
tells of each of its steps; and the process in which a source
asks for records ends, when its query is stopped, with the traceback of a write to a socket that is gone.
Once an application is being stopped, all that the JVM says is of batches that were cut short, which run again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

__all__ = ["filtered", "jvm_stderr", "mute_jvm", "muted"]

_AT_EACH_START = (
    "WARNING: Using incubator modules",
    # Of each operator with keyed state, when its query starts.
    "Starting Streaming TransformWithState",
    "Streaming TransformWithState",
)
_TRACEBACK = "Traceback (most recent call last):"
_CHAINED = "During handling of the above exception, another exception occurred:"
_SOURCE_PROCESS = "python_streaming_source_runner.py"
_LONGEST_TRACEBACK = 200

_muted = threading.Event()


def filtered(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines that are worth reading.

    >>> list(filtered(["WARNING: Using incubator modules: jdk.incubator.vector", "12:00:00 WARN disk is full"]))
    ['12:00:00 WARN disk is full']
    """
    traceback: list[str] = []
    for line in lines:
        if line.startswith(_AT_EACH_START):
            continue
        if traceback:
            traceback.append(line)
            if _goes_on(line) and len(traceback) < _LONGEST_TRACEBACK:
                continue
            yield from _worth_reading(traceback)
            traceback = []
        elif line.startswith(_TRACEBACK):
            traceback = [line]
        elif line.strip() and line.strip() != _CHAINED:
            yield line
    yield from _worth_reading(traceback)


def _goes_on(line: str) -> bool:
    return line.startswith((" ", "\t")) or not line.strip()


def _worth_reading(traceback: list[str]) -> list[str]:
    return [] if any(_SOURCE_PROCESS in line for line in traceback) else traceback


@contextmanager
def jvm_stderr() -> Iterator[None]:
    """Give a JVM that is started inside a stderr of its own, which is filtered on its way to ours."""
    reader, writer = os.pipe()
    stderr = os.dup(2)
    os.dup2(writer, 2)
    os.close(writer)
    _muted.clear()
    threading.Thread(target=_pass_on, args=(reader, os.dup(stderr)), name="jvm-stderr", daemon=True).start()
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


def mute_jvm() -> None:
    """Let the JVM say nothing from now on; we still may."""
    _muted.set()


@contextmanager
def muted() -> Iterator[None]:
    """Say nothing inside, nor let the JVM from then on: Spark's parts complain when the others are gone."""
    mute_jvm()
    stderr, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    os.close(nothing)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


def _pass_on(reader: int, stderr: int) -> None:
    with (
        os.fdopen(reader, encoding="utf-8", errors="replace") as said,
        os.fdopen(stderr, "w", encoding="utf-8", buffering=1) as to,
    ):
        for line in filtered(said):
            if not _muted.is_set():
                to.write(line)
