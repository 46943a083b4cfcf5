"""Headwater's own commands, which have to prove who they are as every client does.

`topics` goes through librdkafka and `transactions` through a connection of its own: both take the same file.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from .certificates import Authority
from .secured import HEADWATER, PASSWORD, Secured

pytestmark = pytest.mark.real

COMMANDS = (["topics", "list"], ["transactions", "list"])
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


def run(
    broker: Secured, file: Path, words: list[str], mechanism: str = "SCRAM-SHA-512", password: str = PASSWORD,
    **more: str,
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """Run a command with its properties in a file."""
    properties = broker.confluent(mechanism, password) | {
        name.replace("_", "."): value for name, value in more.items()
    }
    del properties["bootstrap.servers"]
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    command = [HEADWATER, *words, f"--broker=kafka://{broker.bootstrap}", f"--command-config={file}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def _works(done: subprocess.CompletedProcess[str]) -> None:
    assert (done.returncode, done.stderr) == (0, "")
    assert all(json.loads(line) for line in done.stdout.splitlines())


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_mechanism(sasl_broker: Secured, words: list[str], mechanism: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    _works(run(sasl_broker, file, words, mechanism))
    wrong = run(sasl_broker, file, words, mechanism, password="wrong")
    assert (wrong.returncode, wrong.stdout, wrong.stderr.count("\n")) == (1, "", 1)
    assert wrong.stderr.startswith("Error: ")


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_passwords_over_tls(
    sasl_ssl_broker: Secured, words: list[str], mechanism: str, tmp_path: Path
) -> None:
    _works(run(sasl_ssl_broker, tmp_path / "client.properties", words, mechanism))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_broker_that_nobody_vouches_for(
    ssl_broker: Secured, foreign_authority: Authority, words: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    _works(run(ssl_broker, file, words))
    refused = run(ssl_broker, file, words, ssl_ca_location=str(foreign_authority.cert))
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "certificate" in refused.stderr.lower()
    _works(
        run(
            ssl_broker,
            file,
            words,
            ssl_ca_location=str(foreign_authority.cert),
            enable_ssl_certificate_verification="false",
        )
    )


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_certificate_of_the_client(
    mutual_broker: Secured, authority: Authority, words: list[str], tmp_path: Path
) -> None:
    mine = authority.issue("client")
    file = tmp_path / "client.properties"
    shown = {"ssl_certificate_location": str(mine.cert), "ssl_key_location": str(mine.key)}
    _works(run(mutual_broker, file, words, **shown))
    without = run(mutual_broker, file, words)
    assert (without.returncode, without.stderr.count("\n")) == (1, 1)


def test_a_mechanism_that_is_not_offered(scram_broker: Secured, tmp_path: Path) -> None:
    done = run(scram_broker, tmp_path / "client.properties", ["transactions", "list"], "PLAIN")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
