"""Sessions of Postgres, and its errors as sentences.

The replication stream is read through libpq itself, as psycopg 3 hands it out (`psycopg.pq`), and not with
psycopg2's replication cursor. That one answers the server by itself, and may confirm what was read but is not yet
published: while it reads a transaction that began before the last confirmed place, it takes everything up to the
server's sign of life for done. A capture that is killed then would lose what it held.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, LiteralString

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict

from headwater.capture.postgres.config import Config
from headwater.capture.source import CaptureError, TryAgain

__all__ = ["Session", "answering", "connect", "quoted", "rows", "sentences"]

Session = psycopg.Connection[tuple[Any, ...]]

SESSION = {
    "timezone": "UTC",
    "datestyle": "ISO",
    "intervalstyle": "iso_8601",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "lock_timeout": "30s",
    # The log tells of every row: a snapshot that a policy has hidden rows from would lack them, so it is refused.
    "row_security": "off",
}
"""How every session of ours writes values, whatever the server's, database's or role's defaults are."""

_LIBPQ = {
    "client_encoding": "UTF8",
    "application_name": "headwater-capture",
    "connect_timeout": 10,
    # A cut cable is noticed within half a minute, not within the hours that TCP takes by itself.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}

_SLOT_WAIT = "10min"
"""A new slot waits until the transactions that run have ended."""

_LOGIN = (
    ("root certificate file", "give sslrootcert the PEM file of whoever signed the server's certificate"),
    (
        "certificate verify failed",
        "give sslrootcert the certificate of whoever signed the server's; if it is the right one, somebody else may be"
        " answering",
    ),
    (
        "does not match host name",
        "write the host as the server's certificate has it, or sslmode=verify-ca to have only its signature checked",
    ),
    ("valid client certificate", "give sslcert and sslkey the files of a certificate that the server trusts"),
    ("certificate authentication failed", "use a certificate whose name is the user's, or has a map to it"),
    ("private key file", "give sslkey the PEM file of sslcert's key, which nobody else may read (chmod 600)"),
    ("certificate file", "give sslcert the PEM file of a certificate, and sslkey that of its key"),
    (
        "no encryption",
        "write sslmode=require, or verify-full, behind the ? of the address, or change pg_hba.conf",
    ),
    ("weak sslmode", "write sslmode=verify-full"),
    ("password authentication failed", "check user and password in the address, and sslcert if there is one"),
    ("no password supplied", "write USER:PASSWORD@ before the host in the address"),
    ("no pg_hba.conf entry", "have pg_hba.conf let this user in from this machine, and reload the server"),
    ("does not exist", "check the database and the user in the address"),
    ("is not permitted to log in", "ALTER ROLE … LOGIN, or use another user"),
    ("permission denied for database", "GRANT CONNECT ON DATABASE … TO the user"),
    ("must be superuser or replication role", ""),  # up to 15; the way out is the same sentence
    ("permission denied to start wal sender", ""),
    ("invalid uri", "write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with what libpq knows behind a ?"),
    ("invalid connection option", "check the parameters behind the ? of the address"),
    ("invalid sslmode value", "libpq knows disable, allow, prefer, require, verify-ca and verify-full"),
    ("does not support ssl", "leave sslmode out, or turn ssl on at the server"),
)
"""What a server says that lets nobody in: parts of it, and what to do. Anything else may be over in a moment."""

_NO_REPLICATION = ("must be superuser or replication role", "permission denied to start wal sender")


def connect(config: Config, *, replication: bool = False) -> Session:
    """Open a session, one for the replication stream if asked."""
    try:
        known = conninfo_to_dict(config.url)
        options = " ".join(
            (str(known.get("options") or ""), *(f"-c {name}={value}" for name, value in SESSION.items()))
        )
        more: dict[str, Any] = {
            **{k: v for k, v in _LIBPQ.items() if k not in known},
            "options": options.strip(),
        }
        if replication:
            more["replication"] = "database"
            more["options"] += f" -c lock_timeout={_SLOT_WAIT}"
        return psycopg.connect(config.url, autocommit=True, **more)
    except psycopg.Error as error:
        raise _login_error(config, _text(error)) from error


def _login_error(config: Config, text: str) -> CaptureError:
    lower = text.lower()
    if any(part in lower for part in _NO_REPLICATION):
        return CaptureError(
            f"{config.place} does not let this user read its log ({text}): ALTER ROLE … REPLICATION,"
            " or use a user that has it"
        )
    for part, advice in _LOGIN:
        if part in lower:
            return CaptureError(f"{config.place} does not let us in ({text}): {advice}")
    return TryAgain(f"{config.place} does not answer ({text}): check that it runs and can be reached")


def rows(session: Session, query: LiteralString | bytes, parameters: Any = None) -> list[tuple[Any, ...]]:
    """Return the rows that a query gives."""
    return session.execute(query, parameters).fetchall()


def quoted(*names: str) -> str:
    """Return a name, or names with dots between them, as SQL has it."""
    return ".".join('"{}"'.format(name.replace('"', '""')) for name in names)


def replication_command(session: Session, command: str) -> pq.abc.PGresult:
    """Run one of the replication protocol's own commands, which are no SQL."""
    result = session.pgconn.exec_(command.encode())
    if result.status == pq.ExecStatus.FATAL_ERROR:
        raise psycopg.errors.error_from_result(result)
    return result


@contextmanager
def answering(session: Session, seconds: float) -> Iterator[None]:
    """Hang up on a server that has not answered by the end of the block after so long.

    TCP notices a cut cable, but not a proxy that takes what is sent and hands nothing on.
    """
    is_over = False

    def hang_up() -> None:
        nonlocal is_over
        is_over = True
        line.shutdown(socket.SHUT_RDWR)

    with socket.socket(fileno=os.dup(session.fileno())) as line:
        over = threading.Timer(seconds, hang_up)
        over.daemon = True
        over.start()
        try:
            yield
        except psycopg.OperationalError as error:
            if not is_over:
                raise
            raise psycopg.OperationalError(
                f"not heard of for {seconds:.0f} s: the network may be cut"
            ) from error
        finally:
            over.cancel()
            over.join()


@contextmanager
def sentences(config: Config, doing: str) -> Iterator[None]:
    """Raise what Postgres complains about as a sentence that says what was being done, and whether to try again."""
    try:
        yield
    except psycopg.Error as error:
        state = error.sqlstate or ""
        text = _text(error)
        # Without a state it is the connection; 08 too; 57P0x is a server that stops or starts; 53 lacks something;
        # 40 and 55P03 are about others who hold locks.
        if not state or (state[:2] in ("08", "40", "53") and state != "53400") or state in _PASSING:
            raise TryAgain(f"{config.place} broke off while {doing} ({text})") from error
        if state == "42501" and "row-level security" in text:
            raise CaptureError(
                f"{config.place}: {doing} would leave out rows that a policy hides from this user ({text}):"
                " ALTER ROLE … BYPASSRLS, or use the table's owner"
            ) from error
        if state == "42501":
            raise CaptureError(
                f"{config.place}: {doing} is not allowed ({text}): GRANT what is missing to the user, or use its owner"
            ) from error
        if state == "42704" and "publication" in text:
            raise CaptureError(
                f"{config.place}: {doing} failed ({text}), for it was dropped, and what happened since is not told:"
                " `headwater capture snapshot` reads the tables anew"
            ) from error
        raise CaptureError(f"{config.place}: {doing} failed ({text})") from error


_PASSING = ("57P01", "57P02", "57P03", "57014", "55P03", "55006", "42P01", "42703")
"""55006 is a slot that an earlier session of ours still holds. The last two are about a table that is altered while it
is read: the next try looks at it anew."""


def _text(error: psycopg.Error) -> str:
    """Return an error's first line, which names it; libpq's others repeat it for every address of the host."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].removeprefix("connection failed: ") if lines else type(error).__name__
