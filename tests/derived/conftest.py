"""A broker, a Redis, and applications with stores of every kind."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.testing.process import BrokerProcess
from headwater.testing.redis import RealRedis
from needs import need

_serial = itertools.count(1)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("derived") / "data") as running:
        yield running


@pytest.fixture(scope="session")
def redis() -> Iterator[RealRedis]:
    need("redis-server", "redis-server")
    with RealRedis() as running:
        yield running


@pytest.fixture
def table() -> str:
    """The name of a table that no other test uses."""
    return f"users{os.getpid()}_{next(_serial)}"


@pytest.fixture
def app_file(tmp_path: Path, table: str) -> Path:
    """An application whose table a SQLite file is captured into, with three stores of it in files."""
    path = tmp_path / "shop.py"
    path.write_text(application(tmp_path, table, "words", "profiles", "files"))
    return path


def application(directory: Path, table: str, *stores: str) -> str:
    declared = {
        "words": f'app.index("words", of="{table}", text="email")',
        "profiles": f'app.cache("profiles", of="{table}")',
        "files": f'app.warehouse("files", of="{table}", every="0 seconds", engine="process")',
    }
    source = f"sqlite:///{directory}/shop.db#users"
    lines = [
        "from headwater import App",
        f'app = App("shop{table}")',
        f'app.table("{table}", "id bigint, email string, age int", key="id", source="{source}")',
        *(declared[store] for store in stores),
    ]
    return "\n".join(lines) + "\n"
