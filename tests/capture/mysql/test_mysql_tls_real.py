"""Encrypted connections to real servers: the snapshot's and the log's, and servers that are not to be trusted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from capture.tls import lend
from clients.access.certificates import Authority
from headwater.capture.mysql.config import Config
from headwater.capture.mysql.connection import Connection
from headwater.capture.mysql.source import MySQLSource
from headwater.capture.source import CaptureError, TryAgain
from headwater.cli import main
from headwater.testing.mariadb import RealMariaDB
from headwater.testing.mysql import RealMySQL
from needs import need

from .conftest import SETTINGS, Session
from .follower import Follower, rows_of

pytestmark = pytest.mark.real

USERS = "CREATE TABLE users (id int PRIMARY KEY, name varchar(100))"


@pytest.fixture(scope="module")
def server(kind: type[RealMariaDB], files: tuple[Authority, Authority]) -> Iterator[RealMariaDB]:
    """A server that takes encrypted connections alone; its certificate is for `localhost`."""
    running = kind()
    lent = lend(running, files[0], files[0].issue("server", names="subjectAltName=DNS:localhost"))
    running.settings = {
        **SETTINGS,
        "ssl_ca": str(lent.ca),
        "ssl_cert": str(lent.cert),
        "ssl_key": str(lent.key),
        "require_secure_transport": "ON",
    }
    with running:
        yield running


def at_localhost(url: str) -> str:
    return url.replace("127.0.0.1", "localhost")


def fails(url: str, sentence: str) -> None:
    """Check that no try is made again, and that a sentence says what to do."""
    with pytest.raises(CaptureError, match=sentence) as told, Follower(url, ["users"]) as follower:
        follower.step()
    assert not isinstance(told.value, TryAgain)
    assert "secret" not in str(told.value)


@pytest.mark.parametrize("how", ["tls=true", "ca={ca}&verify=ca", "ca={ca}"])
def test_the_snapshot_and_the_stream_are_encrypted(
    url: str, sql: Session, files: tuple[Authority, Authority], how: str
) -> None:
    sql(USERS)
    sql("INSERT INTO users VALUES (1, 'a')")
    address = f"{at_localhost(url)}?{how.format(ca=files[0].cert)}"
    with Follower(address, ["users"]) as follower:
        follower.settle()
        sql("INSERT INTO users VALUES (2, 'b')")
        follower.settle()
        assert follower.ops() == "rc"
        assert follower.rows == rows_of(address, ["users"])


def test_a_client_with_a_certificate(
    server: RealMariaDB, url: str, sql: Session, files: tuple[Authority, Authority]
) -> None:
    sql(USERS)
    sql("CREATE USER guarded IDENTIFIED BY 'secret' REQUIRE SUBJECT '/CN=guarded'")
    sql("GRANT ALL ON *.* TO guarded")
    guarded = f"{server.url(sql.database, user='guarded')}?ca={files[0].cert}&verify=ca"
    fails(guarded, "does not let us in.*REQUIRE X509")
    mine = files[0].issue("guarded")
    with Follower(f"{guarded}&cert={mine.cert}&key={mine.key}", ["users"]) as follower:
        follower.settle()
        sql("INSERT INTO users VALUES (1, 'a')")
        follower.settle()
        assert follower.ops() == "c"


def test_a_server_that_is_not_to_be_trusted(
    url: str, sql: Session, files: tuple[Authority, Authority], is_mysql: bool
) -> None:
    sql(USERS)
    fails(
        f"{at_localhost(url)}?ca={files[1].cert}",
        r"foreign\.pem does not vouch for.*give ca= the certificate",
    )
    fails(f"{url}?ca={files[0].cert}", "certificate for another name.*verify=ca")
    plain = "takes encrypted connections alone" if is_mysql else "has to come with encryption .*, after tls"
    fails(f"{url}?tls=off", plain)


def test_the_connection_that_reads_the_log_is_as_careful_as_the_snapshots(
    url: str, sql: Session, files: tuple[Authority, Authority]
) -> None:
    sql(USERS)
    trusting, wary = (f"{at_localhost(url)}?ca={authority.cert}" for authority in files)
    with Follower(trusting, ["users"]) as follower:
        follower.settle()
    source = MySQLSource(Config.parse(wary, ["users"]))
    source._connection = Connection(Config.parse(trusting, ["users"]))
    with pytest.raises(CaptureError, match="does not vouch for") as told:
        next(source.follow(follower.position))
    assert not isinstance(told.value, TryAgain)


def test_a_server_without_encryption(kind: type[RealMariaDB], files: tuple[Authority, Authority]) -> None:
    with kind(settings={**SETTINGS, "ssl": "OFF"}) as plain:
        url = plain.database("shop")
        fails(f"{url}?tls=true", "takes no encrypted connections: turn TLS on at the server")
        fails(f"{url}?ca={files[0].cert}", "takes no encrypted connections")


def test_the_certificates_that_mysql_makes_for_itself() -> None:
    if not RealMySQL.installed():
        need("mvn", "maven")
    with RealMySQL(settings=SETTINGS) as mysql:
        url, own = mysql.database("shop"), mysql.data / "databases" / "ca.pem"
        mysql.run(USERS, database="shop")
        fails(f"{url}?ca={own}", "certificate for another name.*verify=ca")
        with Follower(f"{url}?ca={own}&verify=ca", ["users"]) as follower:
            follower.settle()
            mysql.run("INSERT INTO users VALUES (1, 'a')", database="shop")
            follower.settle()
            assert follower.ops() == "c"


def test_the_command_says_so_without_the_password(url: str, files: tuple[Authority, Authority]) -> None:
    address = f"{at_localhost(url)}?ca={files[1].cert}#users"
    done = CliRunner().invoke(main, ["capture", "run", address, "--broker", "kafka://127.0.0.1:1", "--once"])
    assert done.exit_code == 1
    assert "does not vouch for" in done.output
    assert "secret" not in done.output
