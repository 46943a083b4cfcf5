"""`headwater.testing` as users see it."""

from __future__ import annotations

import subprocess
import sys

import headwater.testing


def test_the_public_names_are_these() -> None:
    assert headwater.testing.__all__ == ["advance", "replay", "run_app", "run_function"]


def test_a_test_that_needs_no_spark_does_not_load_it() -> None:
    code = "import sys, headwater.testing.clock; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
