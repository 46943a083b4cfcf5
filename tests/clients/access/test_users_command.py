"""`headwater users` against a broker that runs, Headwater or Kafka."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from clients.brokers import eventually, unique

from .secured import HEADWATER, Secured

pytestmark = pytest.mark.real

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def users(sasl_broker: Secured, tmp_path: Path) -> Run:
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in sasl_broker.confluent().items()))
    broker = (f"--broker=kafka://{sasl_broker.bootstrap}", f"--command-config={file}")

    def run(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [HEADWATER, "users", *arguments, *broker], input=given, capture_output=True, text=True, timeout=60
        )

    return run


def mechanisms(users: Run, name: str) -> list[str]:
    listed = users("list")
    assert listed.returncode == 0, listed.stderr
    rows = [json.loads(line) for line in listed.stdout.splitlines()]
    return next((row["mechanisms"] for row in rows if row["user"] == name), [])


def test_a_user_is_added_listed_and_removed(users: Run) -> None:
    name = unique("user")
    assert users("add", name, given="secret\n").returncode == 0
    eventually(lambda: mechanisms(users, name), lambda seen: seen == ["SCRAM-SHA-256", "SCRAM-SHA-512"])
    assert users("remove", name).returncode == 0
    eventually(lambda: mechanisms(users, name), lambda seen: seen == [])
    again = users("remove", name)
    assert (again.returncode, again.stderr) == (1, f"Error: there is no user {name}\n")
