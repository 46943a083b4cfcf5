"""Which files hold tests that a run wants: importing the others takes longer than many a test."""

from __future__ import annotations

import re
from pathlib import Path

_ALL_REAL = re.compile(r"^pytestmark = .*\bpytest\.mark\.real\b", re.MULTILINE)


def holds_nothing(file: Path, marks: str) -> bool:
    """Tell whether no test of a file is one that `-m real` or `-m "not real"` selects."""
    if marks not in ("real", "not real") or not file.name.startswith("test_") or file.suffix != ".py":
        return False
    text = file.read_text()
    return "pytest.mark.real" not in text if marks == "real" else _ALL_REAL.search(text) is not None
