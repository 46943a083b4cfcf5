"""A real Postgres, so that what we call Postgres' behaviour is Postgres'."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from headwater.testing.process import ProcessError
from headwater.testing.server import RealServer

__all__ = ["RealPostgres"]


class RealPostgres(RealServer):
    """Debian's Postgres with a cluster of its own, a context manager that is ready inside its block.

    Data and port are its own, so that it disturbs no other Postgres. Without `data`, its files are in a
    temporary directory that goes with the block. The superuser is `headwater` with the password `secret`.
    `settings` are those of `postgresql.conf`; `programs` is the directory of another Postgres than Debian's newest.

    >>> with RealPostgres(settings={"wal_level": "logical"}) as postgres:   # doctest: +SKIP
    ...     psycopg.connect(postgres.database("shop"))
    """

    name = "Postgres"
    account = "postgres"
    own_session = True
    stop_seconds = 30
    user = "headwater"
    password = "secret"

    def __init__(
        self,
        data: Path | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        programs: Path | None = None,
        start_seconds: float = 60,
    ) -> None:
        super().__init__(data, start_seconds=start_seconds)
        self.settings = dict(settings or {})
        self.programs = programs

    @staticmethod
    def installed() -> bool:
        """Tell whether Debian's postgresql is on this machine."""
        return _programs() is not None and shutil.which("psql") is not None

    def url(self, database: str = "postgres", *, user: str = user, password: str = password) -> str:
        """Return the address of a database."""
        return f"postgresql://{quote(user)}:{quote(password)}@{self.host}:{self.port}/{quote(database)}"

    def database(self, name: str) -> str:
        """Make an empty database, in place of one of that name, and return its address."""
        self.psql(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        self.psql(f'CREATE DATABASE "{name}"')
        return self.url(name)

    def psql(self, statements: str, *, database: str = "postgres", seconds: float = 60) -> str:
        """Run statements in `psql`, and return what they answer: one line for each row, columns by `|`.

        >>> postgres.psql("SELECT 1, 2")   # doctest: +SKIP
        '1|2\\n'
        """
        done = subprocess.run(
            ["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", statements, self.url(database)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        if done.returncode:
            raise ProcessError(f"psql failed:\n{done.stderr}")
        return done.stdout

    def prepare(self) -> None:
        """Make the cluster unless it is there."""
        if (self.data / "cluster").exists():
            return
        password = self.data / "password"
        password.write_text(self.password)
        self.initialise(
            [
                self._program("initdb"),
                f"--pgdata={self.data / 'cluster'}",
                f"--username={self.user}",
                f"--pwfile={password}",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C.UTF-8",
                "--no-sync",
            ]
        )

    def launch(self, log: int) -> subprocess.Popen[bytes]:
        """Start Postgres."""
        settings = {
            "listen_addresses": self.host,
            "port": str(self.port),
            "unix_socket_directories": "",
            **self.settings,
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return self.spawn([self._program("postgres"), "-D", str(self.data / "cluster"), *options], log)

    def answers(self) -> bool:
        """Tell whether it takes connections."""
        probe = [self._program("pg_isready"), "-q", "-h", self.host, "-p", str(self.port)]
        return subprocess.run(probe, stdin=subprocess.DEVNULL).returncode == 0

    def stop(self) -> int:
        """Stop the server, its connections cut, by force if it takes too long, and return its exit status."""
        process = self._running()
        process.send_signal(signal.SIGINT)  # SIGTERM would wait until every client has left
        try:
            status = process.wait(self.stop_seconds)
        except subprocess.TimeoutExpired:
            return self.kill()
        self.ended()
        return status

    def kill(self) -> int:
        """Kill the server and all its processes with SIGKILL, as a crash would, and return its exit status."""
        process = self._running()
        os.killpg(process.pid, signal.SIGKILL)
        status = process.wait()
        self.ended()
        return status

    def _program(self, name: str) -> str:
        programs = self.programs or _programs()
        if programs is None:
            raise ProcessError("there is no Postgres here: install Debian's postgresql")
        return str(programs / name)


def _programs() -> Path | None:
    """Return the directory of the newest Postgres' programs, which Debian keeps out of the path."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parent.parent.name)
    )
    return found[-1].parent if found else None
