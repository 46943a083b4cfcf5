"""Where the broker is, and how to get in."""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import threading
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from headwater.cli import main
from headwater.cli.client import BrokerUrl, broker_options
from headwater.client import AuthenticationFailed, sasl
from headwater.testing.process import free_port


@pytest.mark.parametrize(
    ("url", "properties"),
    [
        ("kafka://127.0.0.1:9092", {"bootstrap.servers": "127.0.0.1:9092"}),
        ("kafka://[::1]:9092/", {"bootstrap.servers": "[::1]:9092"}),
        ("kafka://a:1,b:2", {"bootstrap.servers": "a:1,b:2"}),
        (
            "kafka://a:1?security.protocol=SSL&ssl.ca.location=/a%20b.pem",
            {"bootstrap.servers": "a:1", "security.protocol": "SSL", "ssl.ca.location": "/a b.pem"},
        ),
        (
            "kafka://ann:se%40cret@a:1,b:2?ca=/a%20b.pem&mechanism=PLAIN&client.id=me",
            {
                "bootstrap.servers": "a:1,b:2",
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "ann",
                "sasl.password": "se@cret",
                "ssl.ca.location": "/a b.pem",
                "client.id": "me",
            },
        ),
        ("kafka://a:1?tls=true", {"bootstrap.servers": "a:1", "security.protocol": "SSL"}),
    ],
)
def test_url(url: str, properties: dict[str, str]) -> None:
    assert BrokerUrl().convert(url, None, None) == properties


@pytest.mark.parametrize(
    "url", ["", "a:1", "http://a:1", "kafka://", "kafka://a", "kafka://a:1,", "kafka://a:1?b"]
)
def test_not_a_url(url: str) -> None:
    with pytest.raises(click.BadParameter):
        BrokerUrl().convert(url, None, None)


@pytest.mark.parametrize(
    "url",
    [
        "kafk://ann:secret@a:1",
        "kafka://ann:secret@a",
        "kafka://ann:secret@a:1?b",
        "kafka://ann:secret@a:1?tls=no",
    ],
)
def test_a_password_in_a_url_that_does_not_fit_is_not_shown(url: str) -> None:
    result = CliRunner().invoke(main, ["topics", "list", "--broker", url])
    assert (result.exit_code, "secret" in result.output) == (2, False)


def test_properties_come_from_the_file_and_the_url(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# mine\n\nsasl.password = a=b \nclient.id=file\n")
    seen: list[dict[str, str]] = []

    @click.command()
    @broker_options
    def command(client: dict[str, str]) -> None:
        seen.append(client)

    words = ["--command-config", str(file), "--broker", "kafka://a:1?client.id=url"]
    assert CliRunner().invoke(command, words).exit_code == 0
    assert seen == [{"bootstrap.servers": "a:1", "sasl.password": "a=b", "client.id": "url"}]
    CliRunner(env={"HEADWATER_BROKER": "kafka://c:3"}).invoke(command, [])
    assert seen[-1] == {"bootstrap.servers": "c:3"}
    file.write_text("security.protocol\n")
    refused = CliRunner().invoke(command, words)
    assert (refused.exit_code, refused.stderr) == (
        1,
        f"Error: {file}, line 1: 'security.protocol' is not NAME=VALUE\n",
    )


@pytest.mark.parametrize(
    "words",
    [
        ["topics", "list"],
        ["groups", "describe", "g"],
        ["transactions", "list"],
        ["produce", "t"],
        ["consume", "t"],
    ],
)
def test_a_broker_that_is_not_there_is_one_line(words: list[str]) -> None:
    port = free_port()
    result = CliRunner().invoke(main, [*words, "--broker", f"kafka://127.0.0.1:{port}"], input="a\n")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: no broker answers at 127.0.0.1:{port}: ")
    assert result.stderr.endswith("Connection refused\n")
    assert result.stderr.count("\n") == 1


def test_a_broker_that_hangs_up_may_want_tls() -> None:
    with socket.create_server(("127.0.0.1", 0)) as hanging_up:

        def hang_up() -> None:
            while True:
                try:
                    connection, _ = hanging_up.accept()
                except OSError:
                    return
                connection.recv(1)
                connection.close()

        threading.Thread(target=hang_up, daemon=True).start()
        address = f"127.0.0.1:{hanging_up.getsockname()[1]}"
        result = CliRunner().invoke(main, ["topics", "list", f"--broker=kafka://{address}"])
        hanging_up.shutdown(socket.SHUT_RDWR)
    assert (result.exit_code, result.stderr) == (
        1,
        f"Error: no broker answers at {address}: the connection is closed: it stopped, or wants another"
        " security.protocol (--command-config)\n",
    )


def test_a_property_that_does_not_exist_is_one_line() -> None:
    result = CliRunner().invoke(main, ["topics", "list", "--broker", "kafka://127.0.0.1:1?no.such=1"])
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert 'No such configuration property: "no.such"' in result.stderr


# -- SASL ----------------------------------------------------------------------------------------


def test_plain() -> None:
    assert list(sasl.exchange("PLAIN", "alice", "se:cret")) == [b"\0alice\0se:cret"]


def test_scram_as_in_rfc_7677(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.token_urlsafe", lambda size: "rOprNGfwEbeRWgbNEkqO")
    steps = sasl.exchange("SCRAM-SHA-256", "user", "pencil")
    assert next(steps) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    final = steps.send(f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
    assert final == f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    with pytest.raises(StopIteration):
        steps.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@given(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8")))
def test_scram_against_a_server_of_four_lines(user: str, password: str) -> None:
    steps = sasl.exchange("SCRAM-SHA-512", user, password)
    first = next(steps).decode()[3:]
    challenge = f"{first.rpartition('r=')[2]}+server"
    challenge = f"r={challenge},s={base64.b64encode(b'salt').decode()},i=4096"
    final, _, proof = steps.send(challenge.encode()).decode().rpartition(",p=")
    salted = hashlib.pbkdf2_hmac("sha512", password.encode(), b"salt", 4096)
    key = hmac.digest(salted, b"Client Key", "sha512")
    message = f"{first},{challenge},{final}".encode()
    signature = hmac.digest(hashlib.sha512(key).digest(), message, "sha512")
    assert bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True)) == key
    with pytest.raises(AuthenticationFailed, match="did not prove"):
        steps.send(b"v=" + base64.b64encode(signature))


@pytest.mark.parametrize(
    "challenge", [b"", b"r=other,s=c2FsdA==,i=4096", b"r={},s=c2FsdA==,i=1", b"r={},s=c2FsdA==,i=99999999999"]
)
def test_a_challenge_that_is_not_answered(challenge: bytes) -> None:
    steps = sasl.exchange("SCRAM-SHA-256", "user", "pencil")
    nonce = next(steps).rpartition(b"r=")[2]
    with pytest.raises(AuthenticationFailed, match="SCRAM challenge"):
        steps.send(challenge.replace(b"{}", nonce))


def test_a_mechanism_that_is_not_known() -> None:
    with pytest.raises(
        AuthenticationFailed, match="'GSSAPI' is not a SASL mechanism that this client knows: PLAIN, SCRAM"
    ):
        sasl.exchange("GSSAPI", "user", "pencil")
