"""Addresses and assignments on the command line."""

from __future__ import annotations

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.cli.options import Address, Assignment, Beginning, format_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9092", ("127.0.0.1", 9092)),
        ("broker.example:0", ("broker.example", 0)),
        ("[::1]:65535", ("::1", 65535)),
    ],
)
def test_address(text: str, address: tuple[str, int]) -> None:
    assert Address().convert(text, None, None) == address
    assert format_address(address) == text


@pytest.mark.parametrize(
    "text",
    ["", "9092", ":9092", "host", "host:", "host:65536", "host:-1", "host:x", "host:²", "::1:9092", "[]:1"],
)
def test_not_an_address(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"HOST:PORT|port between|IPv6"):
        Address().convert(text, None, None)


@given(st.ip_addresses(), st.integers(0, 65535))
def test_address_round_trip(host: object, port: int) -> None:
    address = (str(host), port)
    assert Address().convert(format_address(address), None, None) == address


@pytest.mark.parametrize(
    ("text", "assignment"),
    [
        ("num.partitions=4", ("num.partitions", "4")),
        ("a=b=c", ("a", "b=c")),
        ("a=", ("a", "")),
    ],
)
def test_assignment(text: str, assignment: tuple[str, str]) -> None:
    assert Assignment().convert(text, None, None) == assignment


@pytest.mark.parametrize("text", ["", "a", "=b", " =b"])
def test_not_an_assignment(text: str) -> None:
    with pytest.raises(click.BadParameter, match="NAME=VALUE"):
        Assignment().convert(text, None, None)


@pytest.mark.parametrize("text", ["earliest", "latest", "2026-01-31T10:00:00Z", "2026-01-31"])
def test_beginning(text: str) -> None:
    assert Beginning().convert(text, None, None) == text


@pytest.mark.parametrize("text", ["", "yesterday", "-10m", "2026-01-31T25:00"])
def test_not_a_beginning(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not earliest, latest, or a time"):
        Beginning().convert(text, None, None)
