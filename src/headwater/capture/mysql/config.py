"""What an address says besides where the server is: how to get in, and as which replica.

`mysql://USER:PASSWORD@HOST:PORT/DATABASE?server_id=NUMBER&gtid=off&tls=true&ca=FILE&verify=ca&cert=FILE&key=FILE`
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from headwater.capture.mysql.tls import TLS, switch
from headwater.capture.source import CaptureError

__all__ = ["Config"]

_PARAMETERS = ("server_id", "gtid", *TLS.PARAMETERS)
_PORT = 3306


@dataclass(frozen=True)
class Config:
    """One capture of one server.

    >>> config = Config.parse("mysql://ann:secret@db/shop?server_id=7", ["users", "billing.invoices"])
    >>> config.tables, config.server_id
    ((('shop', 'users'), ('billing', 'invoices')), 7)
    >>> print(config)
    mysql://ann@db:3306/shop
    """

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    database: str
    tables: tuple[tuple[str, str], ...]
    """Database and name."""
    server_id: int
    """As which replica the server knows us; no two may have the same."""
    gtid: bool = True
    """Whether to go on by GTID, where the server has them, which works on its replicas too."""
    tls: TLS = field(default_factory=TLS)

    @classmethod
    def parse(cls, url: str, tables: Sequence[str]) -> Config:
        """Return what an address says, or raise an error that names the part and the fix."""
        parts = urlsplit(url)
        try:
            port = parts.port or _PORT
        except ValueError:
            raise CaptureError(f"the port of {parts.hostname} is not a number from 1 to 65535") from None
        found = dict(parse_qsl(parts.query, keep_blank_values=True))
        for name in found:
            if name not in _PARAMETERS:
                raise CaptureError(
                    f"a MySQL address has no parameter {name!r}: it takes {', '.join(_PARAMETERS)}"
                )
        database = unquote(parts.path).strip("/")
        return cls(
            host=parts.hostname or "127.0.0.1",
            port=port,
            user=unquote(parts.username or "root"),
            password=unquote(parts.password or ""),
            database=database,
            tables=tuple(_table(table, database) for table in tables),
            server_id=_server_id(found.get("server_id")),
            gtid=switch("gtid", found.get("gtid", "on")),
            tls=TLS.parse(found),
        )

    def connecting(self) -> dict[str, Any]:
        """Return what PyMySQL's connections are made with."""
        return {
            "host": self.host,
            "port": self.port,
            "user": self.user,
            "password": self.password,
            "charset": "utf8mb4",
            "autocommit": True,
            "connect_timeout": 10,
            **self.tls.connecting(),
        }

    def __str__(self) -> str:
        """Return the address as it may be shown."""
        return f"mysql://{self.user}@{self.host}:{self.port}/{self.database}"


def _table(text: str, database: str) -> tuple[str, str]:
    schema, dot, name = text.partition(".")
    if not dot:
        schema, name = database, text
    if not schema:
        raise CaptureError(
            f"the table {text} is in no database: write mysql://HOST/DATABASE#{text}, or DATABASE.{text}"
        )
    return schema, name


def _server_id(text: str | None) -> int:
    if text is None:
        # Above what people give to servers by hand, and another one at each start: a connection that hangs on the
        # server for a while after a crash is not thrown out, nor throws us out.
        return random.randrange(1 << 30, 1 << 31)
    if not text.isdigit() or not 0 < int(text) < 1 << 32:
        raise CaptureError(f"server_id={text} is not a number from 1 to 4294967295")
    return int(text)
