"""Which database an address means, and its package.

An address is a URL with the table, or several with commas between them, behind `#`:
`postgresql://HOST/DATABASE#SCHEMA.TABLE`, `mysql://HOST/DATABASE#TABLE`, `sqlite:///FILE#TABLE`.

The package of a database has one function for all this:
`open_source(url: str, tables: Sequence[str], *, name: str) -> Source`, with the URL as it was given but
without the tables, the tables as they were given, and the name of the capture, for whatever has to be named
in the database.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import PurePath
from typing import cast
from urllib.parse import unquote, urlsplit

from headwater.capture.change import Row, TableSchema
from headwater.capture.source import CaptureError, Source

__all__ = ["Database", "databases_of", "open_source", "read_table"]

_PACKAGES = {
    "postgresql": ("postgres", "postgresql"),
    "postgres": ("postgres", "postgresql"),
    "mysql": ("mysql", "mysql"),
    "mariadb": ("mysql", "mysql"),
    "sqlite": ("sqlite", "sqlite"),
}
"""By the scheme: our package, and what Debezium calls the connector."""


@dataclass(frozen=True)
class Database:
    """A database, and those of its tables that are captured."""

    url: str = field(repr=False)
    """Without the tables; it may hold a password."""
    tables: tuple[str, ...]

    @property
    def connector(self) -> str:
        """What the envelope calls the kind of database."""
        return _PACKAGES[_scheme(self.url)][1]

    @property
    def name(self) -> str:
        """The database's own name; of a file, that without directory and ending."""
        path = unquote(urlsplit(self.url).path)
        return PurePath(path).stem if self.connector == "sqlite" else path.strip("/") or "default"

    @property
    def fingerprint(self) -> str:
        """A few letters that tell this database from another one of the same name."""
        return f"{zlib.crc32(str(self).encode()):08x}"

    def __str__(self) -> str:
        """Return the address as it may be shown: without password and parameters."""
        parts = urlsplit(self.url)
        place = parts.netloc.rpartition("@")[2]
        user = f"{parts.username}@" if parts.username else ""
        return f"{parts.scheme}://{user}{place}{parts.path}"


def databases_of(addresses: Iterable[str]) -> list[Database]:
    """Return the databases of some addresses, each with all tables that are named of it, in their order."""
    tables: dict[str, list[str]] = {}
    for address in addresses:
        url, _, named = address.partition("#")
        scheme = _scheme(url)
        if scheme not in _PACKAGES:
            known = ", ".join(f"{name}://" for name in ("postgresql", "mysql", "sqlite"))
            raise CaptureError(f"{scheme}:// is no database that can be captured: write one of {known}")
        if scheme != "sqlite":
            _check_login(address)
        wanted = [table.strip() for table in named.split(",") if table.strip()]
        if not wanted:
            raise CaptureError(
                f"{Database(url, ())} names no table: write it behind a #, as in {scheme}://…#users"
            )
        found = tables.setdefault(url, [])
        found += [table for table in wanted if table not in found]
    return [Database(url, tuple(names)) for url, names in tables.items()]


def open_source(database: Database, *, name: str) -> Source:
    """Return what follows a database; nothing is asked of the database yet."""
    package, _ = _PACKAGES[_scheme(database.url)]
    module = import_module(f"headwater.capture.{package}")
    return cast(Source, module.open_source(database.url, database.tables, name=name))


def read_table(database: Database, table: str) -> Iterator[tuple[TableSchema, list[Row]]]:
    """Yield the rows of a table as they would be captured now, in pieces; nothing is left in the database.

    The first piece comes also where there is no row.
    """
    package, _ = _PACKAGES[_scheme(database.url)]
    module = import_module(f"headwater.capture.{package}")
    yield from module.read_table(database.url, table)


def _check_login(address: str) -> None:
    """Raise an error for a login that ends too early, before parts of it are taken for a host, and shown."""
    scheme, _, rest = address.partition("://")
    login = re.split(r"[/?#]", rest, maxsplit=1)[0]
    behind = rest[len(login) :]
    cut_off = (
        "@" not in login and "@" in behind and (not behind.startswith("/") or "@" in behind.split("?")[0])
    )
    try:
        urlsplit(address)
    except ValueError:  # a bracket, which only belongs to an address of IPv6
        cut_off = True
    if cut_off:
        raise CaptureError(
            f"the user or the password in the {scheme}:// address has a letter that ends it: write / as %2F, ? as %3F,"
            " # as %23, @ as %40, [ as %5B, ] as %5D and % as %25"
        )


def _scheme(url: str) -> str:
    return url.partition("://")[0].lower()
