"""What an address says besides where the database is: the slot, the publication, how often to confirm.

`postgresql://USER:PASSWORD@HOST:PORT/DATABASE?slot=NAME&publication=NAME&heartbeat=SECONDS`, and every parameter
that libpq knows (`sslmode`, `sslrootcert`, …), which are handed on to it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from headwater.capture.source import CaptureError

__all__ = ["Config"]

_HEARTBEAT_SECONDS = 10.0
_LONGEST_NAME = 63


@dataclass(frozen=True)
class Config:
    """One capture of one database."""

    url: str = field(repr=False)
    """For libpq; it may hold a password."""
    tables: tuple[tuple[str, str], ...]
    """Schema and name."""
    slot: str
    publication: str
    owns_slot: bool
    """Whether the slot has the name that we gave it, so that a new snapshot may drop it."""
    owns_publication: bool
    heartbeat: float = _HEARTBEAT_SECONDS

    @classmethod
    def parse(cls, url: str, tables: Sequence[str], *, name: str) -> Config:
        """Return what an address says; `name` is that of the capture.

        >>> config = Config.parse("postgresql://db/shop?sslmode=require&heartbeat=5", ["users"], name="shop")
        >>> config.url, config.slot, config.tables
        ('postgresql://db/shop?sslmode=require', 'headwater_shop', (('public', 'users'),))
        """
        parts = urlsplit(url)
        mine: dict[str, str] = {}
        others: list[tuple[str, str]] = []
        for key, value in parse_qsl(parts.query, keep_blank_values=True):
            if key in ("slot", "publication", "heartbeat"):
                mine[key] = value
            else:
                others.append((key, value))
        own = _own_name(name)
        return cls(
            url=urlunsplit(parts._replace(query=urlencode(others, quote_via=quote), fragment="")),
            tables=tuple(_table(table) for table in tables),
            slot=_identifier("slot", mine["slot"]) if "slot" in mine else own,
            publication=_named("publication", mine["publication"]) if "publication" in mine else own,
            owns_slot="slot" not in mine,
            owns_publication="publication" not in mine,
            heartbeat=_seconds(mine["heartbeat"]) if "heartbeat" in mine else _HEARTBEAT_SECONDS,
        )

    @property
    def place(self) -> str:
        """The address as it may be shown."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _own_name(capture: str) -> str:
    """Return the name of what we make in the database, of the letters that a slot may have."""
    plain = re.sub(r"[^a-z0-9_]", "_", capture.lower())
    name = f"headwater_{plain}"
    if plain == capture and len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME - 9]}_{zlib.crc32(capture.encode()):08x}"


def _table(text: str) -> tuple[str, str]:
    schema, dot, name = text.partition(".")
    if not schema or (dot and not name):
        raise CaptureError(f"{text!r} is not the name of a table: write SCHEMA.TABLE, as in public.users")
    return (schema, name) if dot else ("public", schema)


def _named(parameter: str, value: str) -> str:
    if not value or len(value.encode()) > _LONGEST_NAME:
        raise CaptureError(
            f"{parameter}={value} does not fit: give a name of at most {_LONGEST_NAME} letters"
        )
    return value


def _identifier(parameter: str, value: str) -> str:
    if not re.fullmatch(r"[a-z0-9_]+", _named(parameter, value)):
        raise CaptureError(
            f"{parameter}={value} does not fit: Postgres takes small letters, digits and _ there"
        )
    return value


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 3600:
        raise CaptureError(f"heartbeat={value} does not fit: give seconds, from 0.1 to 3600")
    return seconds
