"""Ids of producers: handed out in blocks that the metadata log has reserved, so that none is given twice.

The log has one key, `producer_ids`, whose value is the first id that no block covers. A restart forgets
what is left of the current block, and begins with the next.
"""

from __future__ import annotations

import json
from typing import Final

from headwater.broker.state import StateRecord
from headwater.core.errors import ApiError, ErrorCode

KEY: Final = b"producer_ids"
BLOCK: Final = 1000
_LAST: Final = 2**63 - 1


class ProducerIds:
    """The allocator.

    An id may be told to a client once the record that reserved its block is on disk.
    """

    def __init__(self) -> None:
        self._next = 0
        self._end = 0
        self._asked_for: int | None = None

    @property
    def left(self) -> int:
        """How many ids the current block still has."""
        return self._end - self._next

    @property
    def reserved(self) -> int:
        """The first id that no block covers, which moves when one is reserved."""
        return self._end

    def reserve(self) -> list[StateRecord]:
        """Return the record that reserves the next block."""
        if self._end > _LAST - BLOCK:
            raise ApiError(ErrorCode.unknown_server_error, "every producer id has been handed out")
        self._asked_for = self._end + BLOCK
        value = {"version": 1, "next": self._asked_for}
        return [StateRecord(KEY, json.dumps(value, separators=(",", ":")).encode())]

    def take(self) -> int:
        """Return an id that was never returned before; the block must have one left."""
        if not self.left:
            raise ApiError(ErrorCode.coordinator_load_in_progress, "no block of producer ids is reserved")
        self._next += 1
        return self._next - 1

    def replay(self, record: StateRecord) -> None:
        """Apply a record: the block is ours if we asked for it, and else was an earlier run's."""
        if record.key != KEY or record.value is None:
            return
        end = int(json.loads(record.value)["next"])
        self._next = self._end if end == self._asked_for else end
        self._end = end
        self._asked_for = None
