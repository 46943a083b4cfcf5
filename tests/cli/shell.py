"""Commands as a user runs them: in a pipe, and on a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from headwater.cli import main

HEADWATER = str(Path(sys.executable).with_name("headwater"))
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class Shell:
    """Runs `headwater` with one broker as its default, and one for queues."""

    bootstrap: str
    amqp: str = "amqp://127.0.0.1:5672"

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "HEADWATER_BROKER": f"kafka://{self.bootstrap}",
            "HEADWATER_AMQP": self.amqp,
            "COLUMNS": "160",
            "LINES": "50",
        }

    def run(self, *words: str, given: str | bytes = "") -> subprocess.CompletedProcess[str]:
        """Run a command in a pipe, whatever becomes of it."""
        data = given.encode() if isinstance(given, str) else given
        done = subprocess.run(
            [HEADWATER, *words], input=data, capture_output=True, env=self.environment, timeout=60
        )
        return subprocess.CompletedProcess(
            done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
        )

    def lines(self, *words: str, given: str | bytes = "") -> list[Any]:
        """Run a command in a pipe that must succeed; return the JSON of each line it prints."""
        done = self.run(*words, given=given)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def error(self, *words: str, given: str | bytes = "") -> str:
        """Run a command that must fail with one line and status 1; return the line."""
        done = self.run(*words, given=given)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1), done
        return done.stderr.removeprefix("Error: ").removesuffix("\n")

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command in a pipe."""
        return subprocess.Popen(
            [HEADWATER, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
        )

    def terminal(self, *words: str, status: int = 0, encoding: str = "utf-8") -> str:
        """Run a command on a terminal, and return what it shows, without colours."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
        process = subprocess.Popen(
            [HEADWATER, *words], stdin=slave, stdout=slave, stderr=slave, env=self.environment
        )
        os.close(slave)
        shown = b""
        with open(master, "rb", buffering=0) as stream:
            while True:
                try:
                    chunk = stream.read(65536)
                except OSError:  # the last one to hold the terminal is gone
                    break
                if not chunk:
                    break
                shown += chunk
        assert process.wait(30) == status, shown
        return _ANSI.sub("", shown.decode(encoding))


class InProcess(Shell):
    """Runs commands in this process, which is ten times faster than starting one; no terminal, no signals."""

    def run(self, *words: str, given: str | bytes = "") -> subprocess.CompletedProcess[str]:
        """Run a command in a pipe, whatever becomes of it."""
        done = CliRunner().invoke(main, words, input=given, env=self.environment)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)


def eventually(look: Callable[[], Any], until: Callable[[Any], bool], seconds: float = 20) -> Any:
    """Look until what is seen is as wanted; return it, or fail with what was seen last."""
    deadline = time.monotonic() + seconds
    while not until(seen := look()):
        assert time.monotonic() < deadline, f"after {seconds} s still {seen!r}"
        time.sleep(0.1)
    return seen
