"""Applications written to a file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes `shop.py` where the test runs, and gives its path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def write(source: str) -> str:
        Path("shop.py").write_text(source)
        return "shop.py"

    return write
