"""What definitions may be called: names that are good topics, since queries, groups and topics bear them."""

from __future__ import annotations

import re
from typing import Final

MAX_LENGTH: Final = 249
"""Kafka's, of which the longest ending that Headwater adds takes its part."""

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")
_ENDINGS: Final = (".dead", ".late")


def problem_with(name: object) -> str | None:
    """Return what is wrong with a name, or None when it is a good one."""
    if not isinstance(name, str):
        return f"a name is text, and {name!r} is not"
    if not name:
        return "a name is empty"
    if name in (".", ".."):
        return f"{name!r} is no name"
    if _LEGAL.fullmatch(name) is None:
        return f"{name!r} is no name for a topic: it holds more than letters, digits, '.', '_' and '-'"
    longest = MAX_LENGTH - max(map(len, _ENDINGS))
    if len(name) > longest:
        return f"{name[:20] + '…'!r} is longer than {longest} characters"
    return None


def collision_key(name: str) -> str:
    """Return what a name has in common with those that Kafka takes for the same in its metrics."""
    return name.replace(".", "_")
