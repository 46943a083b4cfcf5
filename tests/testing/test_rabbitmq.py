from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from headwater.testing.process import ProcessError
from headwater.testing.rabbitmq import RealRabbitMQ, answers
from needs import need_rabbitmq

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]


@pytest.fixture
def server(tmp_path: Path) -> RealRabbitMQ:
    """A RabbitMQ that was not started."""
    need_rabbitmq()
    return RealRabbitMQ(tmp_path / "data", vhosts=("/", "other"))


def processes_of(data: Path) -> list[str]:
    """Return the command lines of processes that work in a directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").resolve().is_relative_to(data):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


def test_it_is_killed_starts_again_and_leaves_nothing_running(server: RealRabbitMQ) -> None:
    with server:
        # Its ports and files are its own.
        listed = subprocess.run(["epmd", "-names"], capture_output=True, text=True, timeout=10).stdout
        assert server.node.split("@")[0] not in listed
        assert (server.data / "mnesia").is_dir()
        assert answers(server.host, server.port)
        assert set(server.control("list_vhosts").split()) == {"name", "/", "other"}
        assert server.control("list_users").split()[-2] == "guest"
        assert any("epmd" in each for each in processes_of(server.data))
        with pytest.raises(ProcessError, match="already runs"):
            server.start()
        port, first = server.port, server.pid
        server.control("add_vhost", "later")
        server.kill()
        assert not answers(server.host, server.port)
        server.start()
        assert server.port == port
        assert server.pid != first
        assert "later" in server.control("list_vhosts").split()
    assert not answers(server.host, server.port)
    assert processes_of(server.data) == []
