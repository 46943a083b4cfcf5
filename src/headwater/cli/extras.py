"""The parts of Headwater that are installed only where they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from headwater.cli.logging import set_up_logging
from headwater.core.errors import HeadwaterError

if TYPE_CHECKING:
    from headwater.app import Warehouse


def needs(module: str, *, extra: str) -> None:
    """Raise an error that says what to install, where a module of an extra is missing."""
    if find_spec(module) is None:
        raise HeadwaterError(f"{module} is not installed: pip install 'headwater[{extra}]'")


def needs_spark(warehouses: Sequence[Warehouse]) -> None:
    """Raise an error where there is no Spark, which tells how these warehouses do without."""
    if warehouses and find_spec("pyspark") is None:
        names = " and ".join(each.name for each in warehouses)
        raise HeadwaterError(
            "pyspark is not installed: pip install 'headwater[spark]', or declare"
            f' {names} with engine="process", for files that are written without Spark'
        )
    needs("pyspark", extra="spark")


def set_up_pipelines(log_level: str) -> None:
    """Make ready to run pipelines in this process: before their modules are imported."""
    needs("pyspark", extra="spark")
    set_up_logging(style="text", level=log_level)
