"""SQLite under kill -9 and under two writers."""

from __future__ import annotations

from pathlib import Path

import pytest

from .views_crash_contract import CrashContract


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/views.db"


class TestSqliteCrash(CrashContract):
    """SQLite keeps what it said."""
