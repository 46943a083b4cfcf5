from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from headwater.core.absent import absent


def test_an_import_inside_finds_nothing_and_one_after_it_finds_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    with absent("colorsys"), pytest.raises(ImportError):
        importlib.import_module("colorsys")
    assert importlib.import_module("colorsys").__name__ == "colorsys"


def test_a_loaded_package_stays() -> None:
    with absent("json"):
        assert importlib.import_module("json") is sys.modules["json"]
    assert sys.modules["json"] is not None


def test_it_ends_with_an_error_too() -> None:
    with pytest.raises(ZeroDivisionError), absent("no_such_package"):
        raise ZeroDivisionError
    assert "no_such_package" not in sys.modules


def test_a_process_of_ours_does_not_load_hypothesis() -> None:
    look = "import sys, headwater.net.serve, headwater.client; print('hypothesis' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("False\n", "")
