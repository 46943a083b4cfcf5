"""A real MariaDB, so that what we call MariaDB's behaviour is MariaDB's."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

from headwater.testing.process import ProcessError
from headwater.testing.server import RealServer

__all__ = ["RealMariaDB"]


class RealMariaDB(RealServer):
    """Debian's MariaDB with data of its own, a context manager that is ready inside its block.

    Data, socket and port are its own, so that it disturbs no other MariaDB, and its binary log is written in rows.
    Without `data`, its files are in a temporary directory that goes with the block. The user with every privilege is
    `headwater` with the password `secret`. `settings` are those of the server's section in `my.cnf`.

    >>> with RealMariaDB(settings={"binlog_row_metadata": "FULL"}) as mariadb:   # doctest: +SKIP
    ...     mariadb.run("CREATE DATABASE shop")
    """

    name = "MariaDB"
    account: ClassVar[str | None] = "mysql"
    stop_seconds = 30
    user = "headwater"
    password = "secret"

    def __init__(
        self,
        data: Path | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        start_seconds: float = 60,
    ) -> None:
        super().__init__(data, start_seconds=start_seconds)
        self.settings = dict(settings or {})

    @staticmethod
    def installed() -> bool:
        """Tell whether Debian's mariadb-server is on this machine."""
        return all(shutil.which(program) for program in ("mariadbd", "mariadb-install-db", "mariadb"))

    def url(self, database: str = "", *, user: str = user, password: str = password) -> str:
        """Return the address of a database."""
        return f"mysql://{quote(user)}:{quote(password)}@{self.host}:{self.port}/{quote(database)}"

    def database(self, name: str) -> str:
        """Make an empty database, in place of one of that name, and return its address."""
        self.run(f"DROP DATABASE IF EXISTS `{name}`; CREATE DATABASE `{name}`")
        return self.url(name)

    def run(self, statements: str, *, database: str = "", seconds: float = 60) -> str:
        """Run statements in `mariadb`, and return what they answer: one line for each row, columns by tabs.

        >>> mariadb.run("SELECT 1, 2")   # doctest: +SKIP
        '1\\t2\\n'
        """
        done = subprocess.run(
            [
                "mariadb",
                "--no-defaults",
                f"--socket={self.data / 'server.sock'}",
                f"--user={self.user}",
                "--default-character-set=utf8mb4",
                "--batch",
                "--skip-column-names",
                *([database] if database else []),
            ],
            env=os.environ | {"MYSQL_PWD": self.password},
            input=statements,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        if done.returncode:
            raise ProcessError(f"mariadb failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def prepare(self) -> None:
        """Make the server's databases unless they are there."""
        if not self.installed():
            raise ProcessError("there is no MariaDB here: install Debian's mariadb-server")
        if (self.data / "databases").exists():
            return
        grantee = f"'{self.user}'@'%' IDENTIFIED BY '{self.password}'"
        statement = f"SET sql_log_bin = 0;\nGRANT ALL PRIVILEGES ON *.* TO {grantee} WITH GRANT OPTION;\n"
        (self.data / "first.sql").write_text(statement)
        self.initialise(
            [
                "mariadb-install-db",
                "--no-defaults",
                f"--datadir={self.data / 'databases'}",
                "--skip-test-db",
                "--auth-root-authentication-method=normal",
                "--innodb-log-file-size=32M",
            ]
        )

    def launch(self, log: int) -> subprocess.Popen[bytes]:
        """Start MariaDB."""
        settings = {**self.common_settings(), "innodb_log_file_size": "32M", **self.settings}
        options = [f"--{name}={value}" for name, value in settings.items()]
        return self.spawn(
            ["mariadbd", "--no-defaults", f"--datadir={self.data / 'databases'}", *options], log
        )

    def common_settings(self) -> dict[str, str]:
        """Return the settings that MySQL shares."""
        return {
            "bind_address": self.host,
            "port": str(self.port),
            "socket": str(self.data / "server.sock"),
            "pid_file": str(self.data / "server.pid"),
            "init_file": str(self.data / "first.sql"),
            "log_bin": str(self.data / "binlog"),
            "binlog_format": "ROW",
            "server_id": "1",
            "innodb_buffer_pool_size": "64M",
            # What was committed must survive a killed process; nobody pulls this machine's plug.
            "innodb_flush_log_at_trx_commit": "2",
        }

    def answers(self) -> bool:
        """Tell whether it runs statements."""
        try:
            self.run("SELECT 1")
        except ProcessError:
            return False
        return True
