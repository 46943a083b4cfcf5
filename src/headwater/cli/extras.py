"""The parts of Headwater that are installed only where they are asked for."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from headwater.cli.logging import set_up_logging
from headwater.core.errors import HeadwaterError


def needs(module: str, *, extra: str) -> None:
    """Raise an error that says what to install, where a module of an extra is missing."""
    if find_spec(module) is None:
        raise HeadwaterError(f"{module} is not installed: pip install 'headwater[{extra}]'")


def without_hypothesis() -> None:
    """Keep Hypothesis out of this process: kio imports it, where it is installed, for strategies that tests use.

    That is 13 MB and 0.1 s of a start.
    """
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]


def set_up_pipelines(log_level: str) -> None:
    """Make ready to run pipelines in this process: before their modules are imported."""
    without_hypothesis()
    needs("pyspark", extra="spark")
    set_up_logging(style="text", level=log_level)
