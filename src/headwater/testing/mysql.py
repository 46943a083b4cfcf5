"""A real MySQL, so that what we call MySQL's behaviour is not MariaDB's."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import zipfile
from pathlib import Path

from headwater.core.cache import cache_directory, exclusive
from headwater.testing.jars import MYSQL_8_0, JarSet
from headwater.testing.mariadb import RealMariaDB

__all__ = ["RealMySQL"]


class RealMySQL(RealMariaDB):
    """MySQL 8.0 with data of its own, a context manager that is ready inside its block.

    Like `RealMariaDB`, whose client program it is asked with, but that it has GTIDs, and passwords by
    `caching_sha2_password`. The server comes from Maven Central, without Debian's.

    >>> with RealMySQL(settings={"binlog_transaction_compression": "ON"}) as mysql:   # doctest: +SKIP
    ...     mysql.run("CREATE DATABASE shop")
    """

    name = "MySQL"
    account = None  # so that it may be in a directory which nobody else may read; see `user` in `launch`

    @staticmethod
    def installed() -> bool:
        """Tell whether this machine can run it: the server is fetched, or Maven is there to do so."""
        return (
            platform.machine() == "x86_64"
            and shutil.which("mariadb") is not None
            and (MYSQL_8_0.fetched or shutil.which("mvn") is not None)
        )

    @property
    def programs(self) -> Path:
        """Return the directory that holds `mysqld`, with what it was built with beside it."""
        return unpacked(MYSQL_8_0) / "bin"

    def prepare(self) -> None:
        """Make the server's files, unless there are some."""
        if (self.data / "databases").exists():
            return
        statements = (
            "SET sql_log_bin = 0;",
            f"CREATE USER IF NOT EXISTS '{self.user}'@'%' IDENTIFIED WITH caching_sha2_password BY '{self.password}';",
            f"GRANT ALL PRIVILEGES ON *.* TO '{self.user}'@'%' WITH GRANT OPTION;",
        )
        (self.data / "first.sql").write_text("\n".join(statements) + "\n")
        shutil.copytree(self._empty(), self.data / "databases")

    def _empty(self) -> Path:
        """Return the files of a server without databases, which take seconds to make, and are made once."""
        directory = self.programs.with_name("empty")
        with exclusive(directory.with_suffix(".lock")):
            if not directory.exists():
                partial = directory.with_suffix(".partial")
                shutil.rmtree(partial, ignore_errors=True)
                self.initialise(
                    [
                        str(self.programs / "mysqld"),
                        "--no-defaults",
                        "--initialize-insecure",
                        f"--datadir={partial}",
                        "--innodb-redo-log-capacity=32M",
                        *(["--user=root"] if os.getuid() == 0 else []),
                    ]
                )
                (
                    partial / "auto.cnf"
                ).unlink()  # the server's name in GTIDs, of which no two may have the same
                partial.rename(directory)
        return directory

    def launch(self, log: int) -> subprocess.Popen[bytes]:
        """Start MySQL."""
        settings = {
            **self.common_settings(),
            "mysqlx": "OFF",
            **({"user": "root"} if os.getuid() == 0 else {}),
            "gtid_mode": "ON",
            "enforce_gtid_consistency": "ON",
            # Which takes a whole core for as long as a stop waits for those who read the binary log.
            "event_scheduler": "OFF",
            "innodb_redo_log_capacity": "32M",
            **self.settings,
        }
        options = [f"--{name}={value}" for name, value in settings.items()]
        command = [str(self.programs / "mysqld"), "--no-defaults", f"--datadir={self.data / 'databases'}"]
        return self.spawn([*command, *options], log)


def unpacked(jars: JarSet) -> Path:
    """Return the directory with the server of a jar, unpacked once."""
    directory = cache_directory() / jars.name
    with exclusive(directory.with_name(f"{jars.name}.lock")):
        if not directory.exists():
            [jar] = jars.fetch().glob("*.jar")
            partial = directory.with_name(f"{jars.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            with zipfile.ZipFile(jar) as archive:
                packed = archive.read("mysql-Linux-amd64.tar.gz")
            subprocess.run(
                ["tar", "--extract", "--gzip", "--no-same-owner", f"--directory={partial}"],
                input=packed,
                check=True,
            )
            partial.rename(directory)
    return directory
