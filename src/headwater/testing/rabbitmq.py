"""A real RabbitMQ, so that what we call RabbitMQ's behaviour is RabbitMQ's."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from headwater.testing.process import ProcessError, free_port, terminate

__all__ = ["RealRabbitMQ", "answers"]

_SCRIPTS = Path("/usr/lib/rabbitmq/bin")
_PLUGINS = ("rabbitmq_consistent_hash_exchange",)


def answers(host: str, port: int, seconds: float = 1) -> bool:
    """Tell whether a broker begins AMQP's handshake: a method frame on channel 0 after the protocol header."""
    try:
        with socket.create_connection((host, port), timeout=seconds) as connection:
            connection.sendall(b"AMQP\x00\x00\x09\x01")
            with connection.makefile("rb") as stream:
                return stream.read(3) == b"\x01\x00\x00"
    except OSError:
        return False


class RealRabbitMQ:
    """Debian's RabbitMQ on one node, a context manager that is ready inside its block.

    Data, cookie, plugins, node name and every port, epmd's included, are its own, so that it disturbs no
    other RabbitMQ. Without `data`, its files are in a temporary directory that goes with the block. The user
    is guest with the password guest, in the virtual hosts named.

    >>> with RealRabbitMQ(vhosts=("/", "other")) as rabbitmq:   # doctest: +SKIP
    ...     pika.BlockingConnection(pika.ConnectionParameters(rabbitmq.host, rabbitmq.port))
    """

    def __init__(
        self,
        data: Path | None = None,
        *,
        vhosts: tuple[str, ...] = ("/",),
        settings: Mapping[str, str] | None = None,
        start_seconds: float = 60,
    ) -> None:
        self.host = "127.0.0.1"
        self.port = free_port()
        self.vhosts = vhosts
        self.start_seconds = start_seconds
        self.ready_after = 0.0
        self._temporary = data is None
        self._data = data
        self._extra = dict(settings or {})
        self._epmd_port = free_port()
        self._distribution_port = free_port()
        self._epmd: subprocess.Popen[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def installed() -> bool:
        """Tell whether Debian's rabbitmq-server is on this machine."""
        return (_SCRIPTS / "rabbitmq-server").exists() and shutil.which("epmd") is not None

    @property
    def data(self) -> Path:
        """Return the directory that holds the settings, the messages and the server's log."""
        if self._data is None:
            self._data = Path(tempfile.mkdtemp(prefix="rabbitmq-"))
        return self._data

    @property
    def log_path(self) -> Path:
        """Return the file that holds what the server prints."""
        return self.data / "server.log"

    @property
    def pid(self) -> int:
        """Return the process id of the running server."""
        return self._running().pid

    @property
    def node(self) -> str:
        """Return the name by which the node is known to Erlang."""
        return f"headwater-{self.port}@localhost"

    @property
    def settings(self) -> dict[str, str]:
        """Return the lines of `rabbitmq.conf`, with the ones given last."""
        return {
            "listeners.tcp.1": f"{self.host}:{self.port}",
            "load_definitions": str(self.data / "definitions.json"),
            "log.console": "true",
            "log.console.level": "info",
            "log.file": "false",
            **self._extra,
        }

    def start(self) -> Self:
        """Start the server, and return once it answers."""
        if self._process is not None:
            raise ProcessError(f"RabbitMQ already runs as process {self._process.pid}: stop it first")
        if not self.installed():
            raise ProcessError("there is no RabbitMQ here: install Debian's rabbitmq-server")
        self._configure()
        began = time.monotonic()
        with self.log_path.open("ab") as log:
            self._epmd = self._spawn(log.fileno(), "epmd", "-port", str(self._epmd_port))
            self._process = self._spawn(log.fileno(), str(_SCRIPTS / "rabbitmq-server"))
        self._await_ready(self._process, began + self.start_seconds)
        self.ready_after = time.monotonic() - began
        return self

    def stop(self) -> int:
        """Stop the server with SIGTERM, by force if it takes too long, and return its exit status."""
        return self._reap(terminate(self._running(), seconds=30))

    def kill(self) -> int:
        """Kill the server with SIGKILL, as a crash would, and return its exit status."""
        process = self._running()
        process.kill()
        return self._reap(process.wait())

    def restart(self) -> Self:
        """Stop the server if it runs, and start it on the same data and port."""
        if self._process is not None:
            self.stop()
        return self.start()

    def control(self, *arguments: str, seconds: float = 60) -> str:
        """Run `rabbitmqctl` on the node and return what it prints.

        >>> rabbitmq.control("add_vhost", "other")   # doctest: +SKIP
        """
        done = subprocess.run(
            [str(_SCRIPTS / "rabbitmqctl"), "--quiet", f"--node={self.node}", *arguments],
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        if done.returncode:
            raise ProcessError(f"rabbitmqctl {arguments[0]} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def errors(self) -> str:
        """Return what the server has printed."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.stop()
        if self._temporary:
            shutil.rmtree(self.data, ignore_errors=True)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ProcessError("RabbitMQ is not running: start it first")
        return self._process

    def _reap(self, status: int) -> int:
        self._process = None
        if self._epmd is not None:
            terminate(self._epmd, seconds=5)
            self._epmd = None
        return status

    def _configure(self) -> None:
        self.data.mkdir(parents=True, exist_ok=True)
        lines = "".join(f"{name} = {value}\n" for name, value in self.settings.items())
        (self.data / "rabbitmq.conf").write_text(lines)
        (self.data / "enabled_plugins").write_text(f"[{','.join(_PLUGINS)}].\n")
        (self.data / "definitions.json").write_text(json.dumps(self._definitions()))

    def _definitions(self) -> dict[str, object]:
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        return {
            "users": [{"name": "guest", "password": "guest", "tags": "administrator"}],
            "vhosts": [{"name": vhost} for vhost in self.vhosts],
            "permissions": [{"user": "guest", "vhost": vhost, **everything} for vhost in self.vhosts],
        }

    def _environment(self) -> dict[str, str]:
        return os.environ | {
            "HOME": str(self.data),
            "ERL_EPMD_ADDRESS": self.host,
            "ERL_EPMD_PORT": str(self._epmd_port),
            "RABBITMQ_CONF_ENV_FILE": str(self.data / "none"),
            "RABBITMQ_CONFIG_FILE": str(self.data / "rabbitmq.conf"),
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.data / "enabled_plugins"),
            "RABBITMQ_LOG_BASE": str(self.data / "log"),
            "RABBITMQ_MNESIA_BASE": str(self.data / "mnesia"),
            "RABBITMQ_NODENAME": self.node,
            # Erlang takes the place of the script that starts it, so that signals reach it.
            "detached": "yes",
        }

    def _spawn(self, log: int, *command: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=self.data,
        )

    def _await_ready(self, process: subprocess.Popen[bytes], deadline: float) -> None:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                self._reap(process.returncode)
                raise ProcessError(f"RabbitMQ ended with {process.returncode}:\n{self.errors()[-4000:]}")
            if answers(self.host, self.port):
                return
            time.sleep(0.05)
        self.kill()
        raise ProcessError(f"RabbitMQ did not answer within {self.start_seconds} s:\n{self.errors()[-4000:]}")
