"""The settings of topics that Headwater makes where they are missing, the same whoever of it comes first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["DEAD_LETTERS", "MAX_RECORD_BYTES", "TABLE"]

MAX_RECORD_BYTES: Final = 32 * 1024 * 1024
"""How large a row may be in a table's topic; Kafka's default of 1 MB is less than databases hold."""

TABLE: Final[Mapping[str, str]] = {"cleanup.policy": "compact", "max.message.bytes": str(MAX_RECORD_BYTES)}
"""Of a table, or a stream of changes: the last change of each row is kept."""

DEAD_LETTERS: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "max.message.bytes": str(MAX_RECORD_BYTES * 3 // 2),
}
"""Keyed by origin: a record read twice is one letter, and one that was sent again is removed. A letter holds its record
in base64, a third larger."""
