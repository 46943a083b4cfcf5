"""The cleaner as the broker sees it: a child process that takes jobs and tells what came of them.

It is started with the first job and ends when there is nothing to do, so a broker without compacted topics has none.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import suppress

from headwater.core.errors import HeadwaterError
from headwater.log.cleaner import Done, Job, Unit
from headwater.log.swap import Fresh, Swap

_LINE_LIMIT = 256 * 1024 * 1024


class CleanerFailed(HeadwaterError):
    """A job that the cleaner could not finish."""


class CleanerHindered(CleanerFailed):
    """A job that may succeed another time: a segment was deleted meanwhile, or the disk is full."""


class CleanerProcess:
    """A process that cleans, one job after the other."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """The id of the process, while there is one."""
        return None if self._process is None else self._process.pid

    async def run(self, job: Job) -> AsyncIterator[Unit | Done]:
        """Yield what the cleaner makes of a job as it goes; the last one is `Done`."""
        process = self._process or await self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(job.to_json().encode() + b"\n")
        while True:
            line = await process.stdout.readline()
            if not line:
                status = await self.close()
                raise CleanerHindered(f"the cleaner ended with status {status}")
            step = _parse(line)
            yield step
            if isinstance(step, Done):
                return

    async def _start(self) -> asyncio.subprocess.Process:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # a file in the directory that we are in may be called as a module of Python's is
            "-m",
            "headwater.log.cleaner",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LINE_LIMIT,
        )
        return self._process

    async def close(self) -> int | None:
        """End the process, whatever it is doing: nothing of it counts."""
        process, self._process = self._process, None
        if process is None:
            return None
        if process.stdin is not None:
            process.stdin.close()
        if process.returncode is None:
            with suppress(ProcessLookupError):  # it may end by itself
                process.kill()
        return await process.wait()


def _parse(line: bytes) -> Unit | Done:
    content = json.loads(line)
    if "failed" in content:
        failed = content["failed"]
        raise (CleanerHindered if failed["passing"] else CleanerFailed)(failed["reason"])
    if "done" in content:
        return Done(**content["done"])
    unit = content["unit"]
    swap = unit["swap"]
    fresh = [Fresh(*new) for new in swap["new"]]
    return Unit(Swap(swap["token"], swap["old"], fresh), unit["dropped_markers"])
