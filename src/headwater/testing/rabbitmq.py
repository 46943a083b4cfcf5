"""A real RabbitMQ, so that what we call RabbitMQ's behaviour is RabbitMQ's."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from headwater.testing.process import ProcessError, free_port, terminate
from headwater.testing.server import RealServer

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


class RealRabbitMQ(RealServer):
    """Debian's RabbitMQ on one node, a context manager that is ready inside its block.

    Data, cookie, plugins, node name and every port, epmd's included, are its own, so that it disturbs no
    other RabbitMQ. Without `data`, its files are in a temporary directory that goes with the block. The user
    is guest with the password guest, in the virtual hosts named.

    >>> with RealRabbitMQ(vhosts=("/", "other")) as rabbitmq:   # doctest: +SKIP
    ...     pika.BlockingConnection(pika.ConnectionParameters(rabbitmq.host, rabbitmq.port))
    """

    name = "RabbitMQ"
    stop_seconds = 30

    def __init__(
        self,
        data: Path | None = None,
        *,
        vhosts: tuple[str, ...] = ("/",),
        settings: Mapping[str, str] | None = None,
        start_seconds: float = 60,
    ) -> None:
        super().__init__(data, start_seconds=start_seconds)
        self.vhosts = vhosts
        self._extra = dict(settings or {})
        self._epmd_port = free_port()
        self._distribution_port = free_port()
        self._epmd: subprocess.Popen[bytes] | None = None

    @staticmethod
    def installed() -> bool:
        """Tell whether Debian's rabbitmq-server is on this machine."""
        return (_SCRIPTS / "rabbitmq-server").exists() and shutil.which("epmd") is not None

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

    def launch(self, log: int) -> subprocess.Popen[bytes]:
        """Start RabbitMQ, and the epmd that Erlang finds it by."""
        environment = self._environment()
        self._epmd = self.spawn(["epmd", "-port", str(self._epmd_port)], log, environment)
        return self.spawn([str(_SCRIPTS / "rabbitmq-server")], log, environment)

    def answers(self) -> bool:
        """Tell whether it begins AMQP's handshake."""
        return answers(self.host, self.port)

    def ended(self) -> None:
        """End epmd too."""
        super().ended()
        if self._epmd is not None:
            terminate(self._epmd, seconds=5)
            self._epmd = None

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

    def prepare(self) -> None:
        """Write the settings, and what is there from the beginning."""
        if not self.installed():
            raise ProcessError("there is no RabbitMQ here: install Debian's rabbitmq-server")
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
