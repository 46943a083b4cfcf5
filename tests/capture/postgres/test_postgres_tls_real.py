"""Encrypted connections to a real Postgres: the snapshot's and the stream's, and servers that are not to be trusted."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

from capture.tls import lend
from clients.access.certificates import Authority
from headwater.capture.source import CaptureError, TryAgain
from headwater.cli import main
from headwater.testing.postgres import RealPostgres

from .conftest import SETTINGS, programs
from .follower import Follower, rows_of

pytestmark = pytest.mark.real

USERS = "CREATE TABLE users (id int PRIMARY KEY, name text)"


@pytest.fixture(scope="module")
def server(files: tuple[Authority, Authority]) -> Iterator[RealPostgres]:
    """A server that takes encrypted connections alone, and for the user `guarded` with a certificate alone."""
    running = RealPostgres(programs=programs(15))
    lent = lend(running, files[0], files[0].issue("server"))
    rules = running.data / "rules"
    rules.write_text(
        "hostssl all guarded all scram-sha-256 clientcert=verify-full\nhostssl all all all scram-sha-256\n"
    )
    rules.chmod(0o644)
    running.settings = {
        **SETTINGS,
        "ssl": "on",
        "ssl_cert_file": str(lent.cert),
        "ssl_key_file": str(lent.key),
        "ssl_ca_file": str(lent.ca),
        "hba_file": str(rules),
    }
    with running:
        yield running


def encrypted(url: str) -> dict[str, bool]:
    """Return whether captures' sessions are encrypted, by what serves them."""
    with psycopg.connect(url) as admin:
        found = admin.execute(
            "SELECT backend_type, ssl FROM pg_stat_activity JOIN pg_stat_ssl USING (pid)"
            " WHERE application_name = 'headwater-capture'"
        ).fetchall()
    return dict(found)


@pytest.mark.parametrize("mode", ["require", "verify-ca", "verify-full"])
def test_the_snapshot_and_the_stream_are_encrypted(
    url: str, sql: psycopg.Connection[tuple[object, ...]], files: tuple[Authority, Authority], mode: str
) -> None:
    sql.execute(USERS)
    sql.execute("INSERT INTO users VALUES (1, 'a')")
    address = f"{url}?sslmode={mode}&sslrootcert={files[0].cert}"
    with Follower(address, ["users"]) as follower:
        follower.settle()
        sql.execute("INSERT INTO users VALUES (2, 'b')")
        follower.settle()
        assert [change.op for change in follower.changes] == ["r", "c"]
        assert encrypted(url)["walsender"] is True
        assert all(encrypted(url).values())
        assert follower.rows == rows_of(address, ["users"])


def test_a_client_with_a_certificate(
    server: RealPostgres,
    url: str,
    sql: psycopg.Connection[tuple[object, ...]],
    files: tuple[Authority, Authority],
    tmp_path: Path,
) -> None:
    sql.execute("CREATE ROLE guarded SUPERUSER LOGIN PASSWORD 'secret'")
    sql.execute(USERS)
    guarded = server.url(url.rpartition("/")[2], user="guarded") + f"?sslrootcert={files[0].cert}"
    fails(guarded, r"valid client certificate.*give sslcert and sslkey")
    other = files[0].issue("other")
    fails(f"{guarded}&sslcert={other.cert}&sslkey={other.key}", "check user and password.*and sslcert")
    mine = files[0].issue("guarded")
    with Follower(f"{guarded}&sslcert={mine.cert}&sslkey={mine.key}", ["users"]) as follower:
        follower.settle()
        assert encrypted(url)["walsender"] is True
    open_to_all = tmp_path / "open.key"
    shutil.copy(mine.key, open_to_all)
    open_to_all.chmod(0o644)
    fails(f"{guarded}&sslcert={mine.cert}&sslkey={open_to_all}", r"group or world access.*chmod 600")


def fails(url: str, sentence: str) -> None:
    """Check that no try is made again, and that a sentence says what to do."""
    with (
        pytest.raises(CaptureError, match=sentence) as told,
        Follower(url, ["users"]) as follower,
    ):
        follower.step()
    assert not isinstance(told.value, TryAgain)
    assert "secret" not in str(told.value)


def test_a_server_that_is_not_to_be_trusted(
    url: str, files: tuple[Authority, Authority], tmp_path: Path
) -> None:
    ours, foreign = files[0].cert, files[1].cert
    for mode in ("require", "verify-ca", "verify-full"):
        fails(
            f"{url}?sslmode={mode}&sslrootcert={foreign}", r"certificate verify failed.*give sslrootcert the"
        )
    elsewhere = url.replace("127.0.0.1", "db.example") + "?hostaddr=127.0.0.1"
    fails(
        f"{elsewhere}&sslmode=verify-full&sslrootcert={ours}", r"does not match host name.*sslmode=verify-ca"
    )
    fails(
        f"{url}?sslmode=verify-full&sslrootcert={tmp_path}/none.pem", r"none\.pem.*give sslrootcert the PEM"
    )
    (tmp_path / "empty.pem").write_text("")
    fails(
        f"{url}?sslmode=verify-full&sslrootcert={tmp_path}/empty.pem", r"empty\.pem.*give sslrootcert the PEM"
    )
    (tmp_path / "empty.key").touch(mode=0o600)
    fails(f"{url}?sslcert={tmp_path}/empty.pem&sslkey={tmp_path}/empty.key", r"empty\.pem.*give sslcert")
    fails(f"{url}?sslmode=disable", r"no encryption.*write sslmode=require")


def test_parameters_that_are_misspelt(url: str) -> None:
    fails(f"{url}?sslmode=verify-fully", r"verify-fully.*libpq knows disable, allow")
    fails(f"{url}?ssl_root_cert=ca.pem", r"ssl_root_cert.*libpq")


def test_the_command_says_so_without_the_password(url: str, files: tuple[Authority, Authority]) -> None:
    address = f"{url}?sslmode=verify-full&sslrootcert={files[1].cert}#users"
    done = CliRunner().invoke(main, ["capture", "run", address, "--broker", "kafka://127.0.0.1:1", "--once"])
    assert done.exit_code == 1
    assert "give sslrootcert the certificate of whoever signed" in done.output
    assert "secret" not in done.output
