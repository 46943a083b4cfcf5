"""What a topic may be called: Kafka's rules, which also keep a name safe as a directory's."""

from __future__ import annotations

import re
from typing import Final

MAX_LENGTH: Final = 249
METADATA_TOPIC: Final = "__cluster_metadata"
INTERNAL: Final = frozenset({"__consumer_offsets", "__share_group_state", "__transaction_state"})
"""The topics that clients see marked as internal."""

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def problem_with(name: str) -> str | None:
    """Return what is wrong with a topic's name, or None when it is a good one."""
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > MAX_LENGTH:
        reason = f"the length of '{name}' is longer than the max allowed length {MAX_LENGTH}"
    elif _LEGAL.fullmatch(name) is None:
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return None
    return f"Topic name is invalid: {reason}"


def collision_key(name: str) -> str:
    """Return what a name has in common with those it collides with: in metrics '.' and '_' are the same."""
    return name.replace(".", "_")
