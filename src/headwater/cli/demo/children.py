"""Child processes that never outlive the demo.

Each child is in a session of its own, so that Ctrl-C on the terminal reaches only the demo, which then stops
the children in order. Should the demo itself be killed, the kernel sends them SIGTERM.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

from headwater.core.errors import HeadwaterError

_STOP_SECONDS = 10.0


class ChildEndedError(HeadwaterError):
    """A process of the demo ended by itself."""


class Child:
    """One process of the demo; what it writes to stderr is in a file, and shown if it ends by itself."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, errors: Path) -> None:
        self.name = name
        self._process = process
        self._errors = errors

    @classmethod
    async def start(cls, name: str, command: list[str], directory: Path) -> Child:
        """Start `command`, with its stderr in `directory`."""
        errors = directory / f"{name}.err"
        with errors.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                *_die_with_parent(),
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )
        return cls(name, process, errors)

    @property
    def pid(self) -> int:
        """Return the process's id."""
        return self._process.pid

    async def line(self) -> str:
        """Return the next line of its stdout, or raise `ChildEndedError` when there will be none."""
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if line:
            return line.decode().rstrip("\n")
        status = await self._process.wait()
        last = self._errors.read_text(errors="replace").strip().splitlines()[-5:]
        said = ": " + "\n  ".join(last) if last else ""
        raise ChildEndedError(f"the {self.name} ended with status {status}{said}")

    async def drain(self, take: Callable[[str], None]) -> None:
        """Hand what is left of its stdout to `take`, once it was stopped."""
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            take(line.decode().rstrip("\n"))

    async def stop(self) -> None:
        """End the process: with SIGTERM, or SIGKILL when it does not end in time."""
        if self._process.returncode is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._process.wait(), _STOP_SECONDS)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


def _die_with_parent() -> list[str]:
    """Return what to run a command with, so that the kernel ends it when this process dies."""
    setpriv = shutil.which("setpriv")  # part of util-linux; elsewhere a killed demo leaves its children
    return [setpriv, "--pdeathsig", "TERM", "--"] if setpriv else []


class UsageMeter:
    """What a process takes of the machine, read from /proc."""

    def __init__(self, pid: int) -> None:
        self._stat = Path(f"/proc/{pid}/stat")
        self._tick = os.sysconf("SC_CLK_TCK")
        self._page = os.sysconf("SC_PAGE_SIZE")

    def read(self) -> tuple[float, int] | None:
        """Return the CPU seconds used so far and the resident bytes, or None when the process is gone."""
        try:
            text = self._stat.read_text()
        except OSError:
            return None
        # Fields count from after the command's name, the only one that may hold spaces: proc(5).
        fields = text[text.rindex(")") + 2 :].split()
        return (int(fields[11]) + int(fields[12])) / self._tick, int(fields[21]) * self._page
