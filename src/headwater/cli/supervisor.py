"""Processes that are kept running together, with one log, and never outlive whoever supervises them.

Each role is a process in a group of its own, so that Ctrl-C on the terminal reaches only the supervisor,
which then stops the roles in order. Should the supervisor itself be killed, the kernel sends them SIGTERM.
They stay in one session: Linux shares out busy cores among sessions first (sched_autogroup), and a broker that wakes
up from its disk waits longer there for pipelines in another session than for the same ones in its own.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import BinaryIO

from headwater.core.errors import HeadwaterError

__all__ = ["Role", "RoleEnded", "Supervisor"]

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
RAN_WELL_SECONDS = 60.0
_LONGEST_LINE = 64 * 1024

Log = Callable[[str, str], None]
"""Takes the name of a role, and a line of what it said."""


class RoleEnded(HeadwaterError):
    """A role that ended before it was ready for the first time."""


@dataclass(frozen=True)
class Role:
    """A process to keep running: its name, its command, and how long it may take to end."""

    name: str
    command: Sequence[str]
    stop_seconds: float = 5.0
    environment: Mapping[str, str] = field(default_factory=dict)
    """What it finds beside our own: secrets are not for the command line, which everybody can read."""


class _Process:
    """A role, its process of the moment, and whether it is ready."""

    def __init__(self, role: Role, log: Log) -> None:
        self.role = role
        self.ready = asyncio.Event()
        self.last_line = ""
        self.process: asyncio.subprocess.Process | None = None
        self._log = log
        self._output: asyncio.Task[None] | None = None

    async def start(self) -> None:
        # Not a pipe of asyncio's: its `wait` comes back when nobody has that open any more, whoever else was given it.
        reader, writer = os.pipe()
        output = os.fdopen(reader, "rb", buffering=0)
        try:
            self.process = await asyncio.create_subprocess_exec(
                *_die_with_parent(),
                *self.role.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=writer,
                stderr=asyncio.subprocess.STDOUT,
                process_group=0,
                env=os.environ | self.role.environment,
            )
        except BaseException:
            output.close()
            raise
        finally:
            os.close(writer)
        self._output = asyncio.create_task(self._follow(output))

    async def wait(self) -> int:
        """Return the exit status, once all that it said was logged."""
        assert self.process is not None
        assert self._output is not None
        status = await self.process.wait()
        self.kill()  # what the process left in its group, a JVM for example, is of no more use
        # Whoever cancels this must not cancel the reader with it, of whom the last lines are still to come.
        await asyncio.wait([self._output], timeout=2)
        self._output.cancel()
        return status

    async def stop(self) -> None:
        """End the process: with SIGTERM, or SIGKILL when it does not end in time."""
        if self.process is None or self._output is None:
            return
        if self.process.returncode is not None and self._output.done():
            return
        with suppress(ProcessLookupError):
            self.process.terminate()
        try:
            async with asyncio.timeout(self.role.stop_seconds):
                await self.process.wait()
        except TimeoutError:
            self._log(self.role.name, f"did not end within {self.role.stop_seconds:.0f} s, and is killed")
            self.kill()
        await self.wait()

    def kill(self) -> None:
        """Kill the process and all that it started."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    async def _follow(self, output: BinaryIO) -> None:
        stream, loop = asyncio.StreamReader(), asyncio.get_running_loop()
        pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), output)
        rest = b""
        try:
            while chunk := await stream.read(65536):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._take(line)
                if len(rest) > _LONGEST_LINE:
                    self._take(rest)
                    rest = b""
        finally:
            pipe.close()
        if rest:
            self._take(rest)

    def _take(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip()
        if not text:
            return
        self.last_line = text
        self._log(self.role.name, text)
        if text.startswith("ready"):
            self.ready.set()


class Supervisor:
    """Starts roles, starts those again that end, and stops all of them in order."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._processes: list[_Process] = []
        self._keepers: list[asyncio.Task[None]] = []
        self._failed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._stopping = False

    async def start(self, *roles: Role) -> None:
        """Start roles side by side, and return when all of them are ready."""
        started = [_Process(role, self._log) for role in roles]
        for each in started:
            self._processes.append(each)
            self._keepers.append(asyncio.create_task(self._keep(each)))
        waits: list[asyncio.Future[bool]] = [asyncio.create_task(each.ready.wait()) for each in started]
        try:
            for wait in waits:
                await asyncio.wait([wait, self._failed], return_when=asyncio.FIRST_COMPLETED)
                if self._failed.done():
                    self._failed.result()
        finally:
            for wait in waits:
                wait.cancel()

    async def stop(self) -> None:
        """Stop the roles: the first one, on which the others depend, when they are gone."""
        self._stopping = True
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        await asyncio.gather(*(each.stop() for each in self._processes[1:]))
        await asyncio.gather(*(each.stop() for each in self._processes[:1]))

    def kill(self) -> None:
        """Kill every role at once."""
        for each in self._processes:
            each.kill()

    async def _keep(self, process: _Process) -> None:
        """Keep one role running."""
        pause = FIRST_PAUSE
        while True:
            began = time.monotonic()
            await process.start()
            status = await process.wait()
            if not process.ready.is_set():
                self._give_up(process, status)
                return
            if time.monotonic() - began > RAN_WELL_SECONDS:
                pause = FIRST_PAUSE
            self._log(process.role.name, f"ended with status {status}, and is started again in {pause:.0f} s")
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _give_up(self, process: _Process, status: int) -> None:
        if not self._failed.done():
            said = f": {process.last_line}" if process.last_line else ""
            self._failed.set_exception(RoleEnded(f"{process.role.name} ended with status {status}{said}"))


def _die_with_parent() -> list[str]:
    """Return what to run a command with, so that the kernel ends it when this process dies."""
    setpriv = shutil.which("setpriv")  # part of util-linux; elsewhere a killed supervisor leaves its roles
    return [setpriv, "--pdeathsig", "TERM", "--"] if setpriv else []
