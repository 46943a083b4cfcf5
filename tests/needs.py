"""Programs that tests with real servers need."""

from __future__ import annotations

import os
import shutil

import pytest


def need(program: str, package: str) -> str:
    """Return the path of a program; without it, skip here and fail where CI is set."""
    if path := shutil.which(program):
        return path
    reason = f"{program} not found: install Debian's package {package}"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
