"""A real Redis, so that what we call Redis' behaviour is Redis'."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from headwater.testing.process import ProcessError
from headwater.testing.server import RealServer

__all__ = ["RealRedis"]


class RealRedis(RealServer):
    """Debian's Redis with data and a port of its own, a context manager that is ready inside its block.

    Every write is on disk before it is acknowledged, unless `settings`, those of `redis.conf`, say otherwise.
    Without `data`, its files are in a temporary directory that goes with the block.

    >>> with RealRedis(settings={"requirepass": "secret"}) as redis:   # doctest: +SKIP
    ...     redis_py.Redis.from_url(redis.url(password="secret"))
    """

    name = "Redis"

    def __init__(
        self,
        data: Path | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        start_seconds: float = 30,
    ) -> None:
        super().__init__(data, start_seconds=start_seconds)
        self.settings = {"appendonly": "yes", "appendfsync": "always", "save": "", **(settings or {})}

    @staticmethod
    def installed() -> bool:
        """Tell whether Debian's redis-server is on this machine."""
        return shutil.which("redis-server") is not None

    def url(self, number: int = 0, *, password: str | None = None) -> str:
        """Return the address of one of the server's databases."""
        return f"redis://{f':{password}@' if password else ''}{self.host}:{self.port}/{number}"

    def prepare(self) -> None:
        """Find the server: it needs nothing but its directory."""
        if not self.installed():
            raise ProcessError("there is no Redis here: install Debian's redis-server")

    def launch(self, log: int) -> subprocess.Popen[bytes]:
        """Start Redis."""
        settings = {"bind": self.host, "port": str(self.port), "dir": str(self.data), **self.settings}
        options = [word for name, value in settings.items() for word in (f"--{name}", value)]
        return self.spawn(["redis-server", *options], log)

    def answers(self) -> bool:
        """Tell whether it has loaded its data."""
        return _answers(self.host, self.port)


def _answers(host: str, port: int) -> bool:
    """Tell whether a server has loaded its data: it may want a password, but says so."""
    try:
        with socket.create_connection((host, port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))
    except OSError:
        return False
