"""A JVM that runs Kafka's tools one after the other: to start one for each takes far longer than what they do."""

from __future__ import annotations

import atexit
import functools
import struct
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import IO

from headwater.testing.jars import JarSet, java_command

_SECONDS = 100


class ToolRunner:
    """ToolRunner.java with the tools of one version, started with the first of them and again after one that hangs."""

    def __init__(self, jars: JarSet) -> None:
        self._jars = jars
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - open for as long as this process lives

    def run(self, tool: str, *arguments: str, given: str = "") -> tuple[int, str, str]:
        """Run a tool to its end; return its status, what it printed, and what it printed as errors."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        words = [word.encode() for word in (tool, *arguments)]
        parts = [*words, given.encode()]
        asked = struct.pack(">i", len(words)) + b"".join(
            struct.pack(">i", len(part)) + part for part in parts
        )
        late = threading.Timer(_SECONDS, process.kill)
        late.start()
        try:
            process.stdin.write(asked)
            process.stdin.flush()
            [status] = struct.unpack(">i", process.stdout.read(4))
            output, errors = (_read(process.stdout).decode() for _ in range(2))
        except (OSError, struct.error):
            self.close()
            raise AssertionError(
                f"{tool} ended its JVM, or took longer than {_SECONDS} s:\n{self._said()}"
            ) from None
        finally:
            late.cancel()
        return status, output, errors

    def close(self) -> None:
        """End the JVM, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            program = Path(__file__).with_name("ToolRunner.java")
            self._process = subprocess.Popen(
                java_command(self._jars, str(program)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
            )
        return self._process

    def _said(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-4000:]


def _read(stream: IO[bytes]) -> bytes:
    [size] = struct.unpack(">i", stream.read(4))
    return stream.read(size)


@functools.cache
def runner(jars: JarSet) -> ToolRunner:
    """Return this process's runner for the tools of a version."""
    made = ToolRunner(jars)
    atexit.register(made.close)
    return made
