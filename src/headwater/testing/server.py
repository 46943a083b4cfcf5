"""A real server in a process of its own, to be stopped, killed and started again by tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from headwater.testing.process import ProcessError, ServerProcess, free_port, terminate

__all__ = ["RealServer"]


class RealServer(ServerProcess):
    """A server whose port stays the same over restarts.

    Without `data`, its files are in a temporary directory that goes with the block.
    """

    stop_seconds: ClassVar[float] = 20
    account: ClassVar[str | None] = None
    """Who runs the server where we are root, if it refuses to run for root."""
    own_session: ClassVar[bool] = False
    """Whether signals to us do not reach it, and its processes can be signalled together."""

    def __init__(self, data: Path | None = None, *, start_seconds: float = 60) -> None:
        self.host = "127.0.0.1"
        self.port = free_port()
        self.start_seconds = start_seconds
        self.ready_after = 0.0
        self._temporary = data is None
        self._data = data

    @property
    def data(self) -> Path:
        """Return the directory that holds the settings, what the server keeps, and its log."""
        if self._data is None:
            self._data = Path(tempfile.mkdtemp(prefix=f"{self.name.lower()}-"))
        return self._data

    @property
    def log_path(self) -> Path:
        """Return the file that holds what the server prints."""
        return self.data / "server.log"

    @abstractmethod
    def prepare(self) -> None:
        """Write what the server reads when it starts; the directory is there."""

    @abstractmethod
    def launch(self, log: int) -> subprocess.Popen[bytes]:
        """Start the server, with its output in an open file."""

    @abstractmethod
    def answers(self) -> bool:
        """Tell whether the server answers as it should."""

    def ended(self) -> None:
        """Clear up once the server has ended; the base has nothing to."""
        self._process = None

    def start(self) -> Self:
        """Start the server, and return once it answers."""
        self._refuse_second()
        self.data.mkdir(parents=True, exist_ok=True)
        if account := self.as_account():
            shutil.chown(self.data, account["user"], account["group"])
        self.prepare()
        began = time.monotonic()
        with self.log_path.open("ab") as log:
            self._process = self.launch(log.fileno())
        self._await_ready(self._process, began + self.start_seconds)
        self.ready_after = time.monotonic() - began
        return self

    def stop(self) -> int:
        """Stop the server with SIGTERM, by force if it takes too long, and return its exit status."""
        status = terminate(self._running(), seconds=self.stop_seconds)
        self.ended()
        return status

    def kill(self) -> int:
        """Kill the server with SIGKILL, as a crash would, and return its exit status."""
        process = self._running()
        process.kill()
        status = process.wait()
        self.ended()
        return status

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._temporary and self._process is not None:
            self.kill()  # what it would put in order is about to go
        super().__exit__(kind, error, trace)
        if self._temporary:
            shutil.rmtree(self.data, ignore_errors=True)

    def spawn(
        self, command: list[str], log: int, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Return a process of the server, in its directory and with its output in the log."""
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=self.data,
            start_new_session=self.own_session,
            **self.as_account(),
        )

    def initialise(self, command: list[str]) -> None:
        """Run the program that makes the server's files."""
        done = subprocess.run(command, cwd=self.data, capture_output=True, text=True, **self.as_account())
        if done.returncode:
            raise ProcessError(f"{Path(command[0]).name} failed:\n{done.stdout}{done.stderr}")

    def as_account(self) -> dict[str, Any]:
        """Return what has a process run for the server's account."""
        if self.account is None or os.getuid() != 0:
            return {}
        return {"user": self.account, "group": self.account, "extra_groups": []}

    def _await_ready(self, process: subprocess.Popen[bytes], deadline: float) -> None:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                self.ended()
                raise ProcessError(f"{self.name} ended with {process.returncode}:\n{self.errors()[-4000:]}")
            if self.answers():
                return
            time.sleep(0.05)
        self.kill()
        raise ProcessError(
            f"{self.name} did not answer within {self.start_seconds} s:\n{self.errors()[-4000:]}"
        )
