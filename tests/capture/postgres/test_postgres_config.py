"""What the address of a Postgres says, and what it may not."""

from __future__ import annotations

import doctest

import pytest

import headwater.capture.postgres
from headwater.capture.postgres import config, offset
from headwater.capture.postgres.config import Config
from headwater.capture.source import CaptureError


def test_the_examples_in_the_code_run() -> None:
    for module in (config, offset):
        assert doctest.testmod(module) == (0, doctest.testmod(module).attempted)
        assert doctest.testmod(module).attempted


def test_what_is_ours_is_told_from_what_is_libpqs() -> None:
    address = (
        "postgresql://ann:s%40cret@db:5433/shop?slot=mine&publication=Ours&sslmode=require&heartbeat=2.5"
    )
    found = Config.parse(address, ["users", "sales.Orders"], name="shop")
    assert found.url == "postgresql://ann:s%40cret@db:5433/shop?sslmode=require"
    assert (found.slot, found.publication, found.heartbeat) == ("mine", "Ours", 2.5)
    assert not found.owns_slot
    assert not found.owns_publication
    assert found.tables == (("public", "users"), ("sales", "Orders"))
    assert found.place == "postgresql://db:5433/shop"
    assert "cret" not in repr(found)


@pytest.mark.parametrize("name", ["shop.users", "Shop", "ü" * 40, "x" * 80])
def test_names_of_captures_become_names_that_a_slot_may_have(name: str) -> None:
    slot = Config.parse("postgresql://db/shop", ["users"], name=name).slot
    assert slot.startswith("headwater_")
    assert len(slot) <= 63
    assert set(slot) <= set("abcdefghijklmnopqrstuvwxyz0123456789_")
    assert slot != Config.parse("postgresql://db/shop", ["users"], name=name + "2").slot


@pytest.mark.parametrize(
    ("query", "tables", "told"),
    [
        ("slot=My-Slot", ["users"], "small letters, digits and _"),
        ("publication=", ["users"], "at most 63 letters"),
        ("heartbeat=never", ["users"], r"seconds, from 0\.1 to 3600"),
        ("", ["public."], "not the name of a table"),
    ],
)
def test_what_does_not_fit_is_named(query: str, tables: list[str], told: str) -> None:
    with pytest.raises(CaptureError, match=told):
        Config.parse(f"postgresql://db/shop?{query}", tables, name="shop")


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headwater.capture.postgres, "find_spec", lambda name: None)
    with pytest.raises(CaptureError, match=r"pip install 'headwater\[capture\]'"):
        headwater.capture.postgres.open_source("postgresql://db/shop", ["users"], name="shop")
