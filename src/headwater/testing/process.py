"""A Headwater broker in a process of its own, to be stopped, killed and started again by tests."""

from __future__ import annotations

import os
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from headwater.core.errors import HeadwaterError

__all__ = ["BrokerProcess", "ProcessError", "ServerProcess", "free_port", "terminate"]


_FIRST_PORT, _FIRST_OUTGOING = 10_000, 32_768
"""From where to where ports are free; the second is Linux's default."""


class ProcessError(HeadwaterError):
    """A process that did not start, or did not stop, with what it wrote to standard error."""


def free_port(host: str = "127.0.0.1") -> int:
    """Return a TCP port that nobody listened on a moment ago.

    It is none of those that the system gives to outgoing connections: a server that takes seconds to listen on it finds
    it free all the same.
    """
    try:
        first_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        first_outgoing = _FIRST_OUTGOING
    ports = range(_FIRST_PORT, max(first_outgoing, _FIRST_PORT + 1_000))
    while True:
        # Not the generator that tests are seeded with: processes would choose the same ports in the same order.
        port = secrets.choice(ports)
        with socket.socket() as probe, suppress(OSError):
            probe.bind((host, port))
            return port


def terminate(process: subprocess.Popen[Any], seconds: float) -> int:
    """Ask a process to stop, kill it when it has not after that time, and return its exit status."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait()


class ServerProcess(ABC):
    """A server as a child process: a context manager that is ready inside its block, and can be started again."""

    name: ClassVar[str]
    """What the server is called in sentences."""
    _process: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def log_path(self) -> Path:
        """Return the file that holds what the server prints, over all restarts."""

    @abstractmethod
    def start(self) -> Self:
        """Start the server, and return once it is ready."""

    @abstractmethod
    def stop(self) -> int:
        """Stop the server with SIGTERM, and return its exit status."""

    @property
    def pid(self) -> int:
        """Return the process id of the running server."""
        return self._running().pid

    def restart(self) -> Self:
        """Stop the server if it runs, and start it on the same data and port."""
        if self._process is not None:
            self.stop()
        return self.start()

    def errors(self) -> str:
        """Return what the server has printed, of a broker what it wrote to standard error."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.stop()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ProcessError(f"{self.name} is not running: start it first")
        return self._process

    def _refuse_second(self) -> None:
        if self._process is not None:
            raise ProcessError(f"{self.name} already runs as process {self._process.pid}: stop it first")


class BrokerProcess(ServerProcess):
    """`headwater broker` as a child process, a context manager that is ready inside its block.

    The port stays the same over restarts, so that clients find the broker again. Standard error is kept in
    `log_path`, over all restarts.

    >>> with BrokerProcess(data, settings={"num.partitions": "4"}) as broker:   # doctest: +SKIP
    ...     Producer({"bootstrap.servers": broker.bootstrap})
    """

    name = "the broker"

    def __init__(
        self,
        data: Path,
        *,
        port: int | None = None,
        amqp: bool = False,
        durability: str | None = None,
        settings: Mapping[str, str] | None = None,
        options: tuple[str, ...] = (),
        start_seconds: float = 20,
    ) -> None:
        self.data = data
        self.host = "127.0.0.1"
        self.port = port or free_port()
        self.amqp_port = free_port() if amqp else None
        self.durability = durability
        self.settings = dict(settings or {})
        self.options = options
        self.start_seconds = start_seconds
        self.ready_line = ""
        self.ready_after = 0.0

    @property
    def log_path(self) -> Path:
        """Return the file that holds what the broker writes to standard error."""
        return self.data.with_name(f"{self.data.name}.stderr.log")

    @property
    def bootstrap(self) -> str:
        """Return the address for `bootstrap.servers`."""
        return f"{self.host}:{self.port}"

    @property
    def command(self) -> list[str]:
        """Return the command line, with the `headwater` that belongs to this Python."""
        settings = [word for name, value in self.settings.items() for word in ("-c", f"{name}={value}")]
        return [
            str(Path(sys.executable).with_name("headwater")),
            "broker",
            f"--data={self.data}",
            f"--kafka={self.bootstrap}",
            "--amqp=" + ("none" if self.amqp_port is None else f"{self.host}:{self.amqp_port}"),
            *([f"--durability={self.durability}"] if self.durability else []),
            *settings,
            *self.options,
        ]

    def start(self) -> Self:
        """Start the broker, and return once it has said that it is ready."""
        self._refuse_second()
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
            )
        try:
            self.ready_line = self._await_ready(self._process, began + self.start_seconds)
        except ProcessError:
            self.kill()
            raise
        self.ready_after = time.monotonic() - began
        return self

    def stop(self, seconds: float = 20) -> int:
        """Stop the broker with SIGTERM, and return its exit status."""
        process = self._running()
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ProcessError(f"the broker did not stop within {seconds} s of SIGTERM") from None
        return self._reap(process)

    def kill(self) -> int:
        """Kill the broker with SIGKILL, as a crash would, and return its exit status."""
        process = self._running()
        process.kill()
        return self._reap(process)

    def _reap(self, process: subprocess.Popen[bytes]) -> int:
        status = process.wait()
        if process.stdout is not None:
            process.stdout.close()
        self._process = None
        return status

    def _await_ready(self, process: subprocess.Popen[bytes], deadline: float) -> str:
        assert process.stdout is not None
        output = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while (left := deadline - time.monotonic()) > 0:
                if not selector.select(left):
                    break
                chunk = os.read(process.stdout.fileno(), 4096)
                output += chunk
                for line in output.decode(errors="replace").splitlines():
                    if line.startswith("ready"):
                        return line
                if not chunk:
                    status = process.wait()
                    raise ProcessError(f"the broker ended with status {status}:\n{self._tail(output)}")
        raise ProcessError(f"the broker was not ready within {self.start_seconds} s:\n{self._tail(output)}")

    def _tail(self, output: bytes) -> str:
        return output.decode(errors="replace") + self.errors()[-4000:]
