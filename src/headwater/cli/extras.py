"""The parts of Headwater that are installed only where they are asked for."""

from __future__ import annotations

from importlib.util import find_spec

from headwater.core.errors import HeadwaterError


def needs(module: str, *, extra: str) -> None:
    """Raise an error that says what to install, where a module of an extra is missing."""
    if find_spec(module) is None:
        raise HeadwaterError(f"{module} is not installed: pip install 'headwater[{extra}]'")
