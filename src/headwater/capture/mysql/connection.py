"""Connections to a server, and what its errors mean."""

from __future__ import annotations

import select
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import pymysql
from pymysql.constants import COMMAND
from pymysql.converters import escape_string

from headwater.capture.mysql.config import Config
from headwater.capture.source import CaptureError, TryAgain

__all__ = ["Connection", "Packets", "identifier", "understood"]

_PASSING = frozenset(
    {
        1040,  # too many connections
        1053,  # the server shuts down
        1152, 1158, 1159, 1160, 1161, 1184,  # the connection broke
        1205, 1213,  # waited too long for a lock
        1226,  # a limit of the user for an hour
        1317, 1927,  # killed
        1412,  # a table changed since the snapshot began
        2002, 2003, 2006, 2013, 2014, 2055,  # cannot connect, or not any more
        4031,  # idle for too long
    }
)  # fmt: skip
_PURGED = ("purged", "could not find", "not found", "too old")


@contextmanager
def understood(config: Config) -> Iterator[None]:
    """Turn what the driver raises into what a user can do about it."""
    try:
        yield
    except pymysql.err.MySQLError as error:
        raise _meaning(error, config) from error
    except OSError as error:
        raise TryAgain(f"the connection to {config} broke: {error}") from error
    except RuntimeError as error:
        if "cryptography" not in str(error):  # which some ways to log in need
            raise
        raise CaptureError(f"{config}: {error}: pip install 'headwater[capture]'") from error


def _meaning(error: pymysql.err.MySQLError, config: Config) -> CaptureError:
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    said = str(error.args[1]) if len(error.args) > 1 else str(error)
    cause = getattr(error, "original_exception", None)  # why there is no connection
    if isinstance(cause, ssl.SSLCertVerificationError):
        return config.tls.distrust(str(config), cause)
    if code == 2026:
        return CaptureError(
            f"{config} takes no encrypted connections: turn TLS on at the server (ssl_cert, ssl_key), or leave"
            f" tls, ca, cert and key out of the address. It says: {said}"
        )
    if code == 3159:
        return CaptureError(
            f"{config} takes encrypted connections alone: write tls=true, or ca=FILE, into the address, and not"
            f" tls=off. It says: {said}"
        )
    if code in _PASSING or isinstance(error, pymysql.err.InternalError):
        return TryAgain(f"{config}: {said} ({code})")
    if code == 1236:
        if any(word in said.lower() for word in _PURGED):
            return CaptureError(
                f"{config} has purged the binary log that comes next, so that changes are lost: `headwater capture"
                " snapshot` takes a new snapshot; let the server keep its logs for longer (expire_logs_days,"
                f" binlog_expire_logs_seconds). It says: {said}"
            )
        return CaptureError(
            f"{config} cannot go on in its binary log: if it was restored or its log was reset, `headwater capture"
            f" snapshot` takes a new snapshot. It says: {said}"
        )
    if code in (1045, 1698, 1251):
        return CaptureError(
            f"{config} does not let us in: look after the user and the password, and where the user has to come with"
            " encryption (REQUIRE SSL, require_secure_transport) or a certificate (REQUIRE X509), after tls, cert and"
            f" key. It says: {said}"
        )
    if code == 1049:
        return CaptureError(f"{config}: {said}: look after the name of the database")
    if code in (1044, 1142, 1143, 1227):
        return CaptureError(
            f"{config}: {said}. Capture needs SELECT on the tables: GRANT SELECT ON … TO …, and for the binary log"
            " GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO …"
        )
    if code == 1146:
        return CaptureError(
            f"{config}: {said}: look after the name of the table, or leave it out of the capture"
        )
    return CaptureError(f"{config}: {said} ({code})")


def identifier(*names: str) -> str:
    """Return names in quotes, with dots between them."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)


class Connection:
    """A connection for queries, whose answers are bytes as they came."""

    def __init__(self, config: Config) -> None:
        self.config = config
        with understood(config):
            self._pymysql = pymysql.connect(
                **config.connecting(), use_unicode=False, conv={}, read_timeout=120
            )
        # The text of times and text depends on these, and must not on how the server is set up.
        self.run("SET time_zone = '+00:00', sql_mode = '', net_write_timeout = 3600")

    @property
    def version(self) -> str:
        """What the server says it is."""
        return str(self._pymysql.get_server_info())

    @property
    def id(self) -> int:
        """By which number the server knows it, to `KILL` what it does."""
        return int(self._pymysql.thread_id())

    @property
    def is_mariadb(self) -> bool:
        """Whether it is MariaDB."""
        return "mariadb" in self.version.lower()

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement and return the rows of its answer."""
        with understood(self.config), self._pymysql.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def texts(self, statement: str) -> list[tuple[str | None, ...]]:
        """Run a statement and return the rows of its answer as text."""
        return [tuple(None if cell is None else cell.decode() for cell in row) for row in self.run(statement)]

    def literal(self, text: str) -> str:
        """Return a text as it stands in a statement."""
        return f"'{escape_string(text)}'"

    def stream(self, query: str) -> Iterator[list[bytes]]:
        """Run a query and yield packets of rows as they come, so that no table needs to fit into memory."""
        with understood(self.config):
            self._pymysql._execute_command(COMMAND.COM_QUERY, query)
            columns = self._pymysql._read_packet().read_length_encoded_integer()
            for _ in range(columns + 1):  # their descriptions, and the end of these
                self._pymysql._read_packet()
            packets = Packets(self._pymysql)
            while True:
                found = packets.read()
                if found[-1][:1] == b"\xfe" and len(found[-1]) < 9:
                    yield found[:-1]
                    return
                yield found

    def close(self) -> None:
        """Leave, whatever is under way."""
        self._pymysql._force_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Packets:
    """Takes over from PyMySQL what a connection receives: many packets with one call, and whether there are more."""

    def __init__(self, connection: Any) -> None:
        self._file = connection._rfile
        self._socket = connection._sock
        self._rest = b""
        self._wanted = 4  # bytes until there is something to split off

    def read(self) -> list[bytes]:
        """Return the packets that are there; wait for at least one. An error that the server sends is raised."""
        while True:
            chunks, size = [self._rest], len(self._rest)
            while size < self._wanted:
                chunk = self._file.read1(1 << 18)
                if not chunk:
                    raise pymysql.err.OperationalError(2013, "the server closed the connection")
                chunks.append(chunk)
                size += len(chunk)
            found = self._split(b"".join(chunks))
            if found:
                return found

    def ready(self) -> bool:
        """Tell whether something more has arrived."""
        pending = getattr(self._socket, "pending", None)
        return bool((pending is not None and pending()) or select.select([self._socket], [], [], 0)[0])

    def _split(self, data: bytes) -> list[bytes]:
        found: list[bytes] = []
        at, size = 0, len(data)
        while size - at >= 4:
            parts, place = [], at
            while True:
                length = int.from_bytes(data[place : place + 3], "little")
                end = place + 4 + length
                if size - place < 4 or end > size:
                    self._rest = data[at:]
                    self._wanted = max(end, place + 4) - at
                    return found
                parts.append(data[place + 4 : end])
                place = end
                if length < 0xFFFFFF:  # a longer one goes on in the next
                    break
            packet = parts[0] if len(parts) == 1 else b"".join(parts)
            if packet[:1] == b"\xff":
                pymysql.err.raise_mysql_exception(packet)
            found.append(packet)
            at = place
        self._rest = data[at:]
        self._wanted = 4
        return found
