"""The types of option values that several commands take."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import click


class Address(click.ParamType[tuple[str, int]]):
    """A `HOST:PORT`, with an IPv6 host in brackets."""

    name = "HOST:PORT"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        """Return the host and the port, or end with status 2."""
        if isinstance(value, tuple):
            return value
        host, colon, port = str(value).rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            self.fail(f"{value!r} needs brackets around its IPv6 host, like [::1]:9092.", param, ctx)
        if not colon or not host:
            self.fail(f"{value!r} is not HOST:PORT, like 127.0.0.1:9092.", param, ctx)
        if not (port.isascii() and port.isdigit() and int(port) < 2**16):
            self.fail(f"{value!r} has no port between 0 and 65535.", param, ctx)
        return host, int(port)


class OptionalAddress(click.ParamType[tuple[str, int] | None]):
    """A `HOST:PORT`, or `none`."""

    name = "HOST:PORT|none"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int] | None:
        """Return the host and the port, or None, or end with status 2."""
        return None if value in (None, "none") else Address().convert(value, param, ctx)


class Assignment(click.ParamType[tuple[str, str]]):
    """A `NAME=VALUE`; the value may hold further equals signs, or nothing."""

    name = "NAME=VALUE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Return the name and the value, or end with status 2."""
        if isinstance(value, tuple):
            return value
        name, equals, text = str(value).partition("=")
        if not equals or not name.strip():
            self.fail(f"{value!r} is not NAME=VALUE, like retention.ms=60000.", param, ctx)
        return name.strip(), text


class PartitionOffset(click.ParamType[tuple[str, int, int]]):
    """An offset of one partition: `TOPIC:PARTITION=OFFSET`."""

    name = "TOPIC:PARTITION=OFFSET"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int, int]:
        """Return the topic, the partition and the offset, or end with status 2."""
        if isinstance(value, tuple):
            return value
        place = re.fullmatch(r"(.+):([0-9]{1,9})=([0-9]{1,18})", str(value), re.ASCII)
        if place is None:
            self.fail(f"{value!r} is not TOPIC:PARTITION=OFFSET, like orders:0=1200.", param, ctx)
        return place[1], int(place[2]), int(place[3])


class Beginning(click.ParamType[str]):
    """Where a topic is read from at first: `earliest`, `latest`, or a time in ISO 8601."""

    name = "earliest|latest|TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text as it is, or end with status 2."""
        text = str(value)
        if text not in ("earliest", "latest"):
            try:
                datetime.fromisoformat(text)
            except ValueError:
                self.fail(
                    f"{text!r} is not earliest, latest, or a time like 2026-01-31T10:00:00Z.", param, ctx
                )
        return text


def format_address(address: tuple[str, int]) -> str:
    """Return the text that `Address` reads as `address`."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
