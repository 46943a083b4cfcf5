"""The users of a broker that is not running: how the first one comes to be."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from headwater.broker.access.users import Users
from headwater.broker.state import StateRecord
from headwater.broker.topic_names import METADATA_TOPIC
from headwater.core.clock import SystemClock
from headwater.core.errors import HeadwaterError
from headwater.log.directory import LogDirectory
from headwater.net.state_log import StateLog

__all__ = ["UsersAtRest"]


class UsersAtRest:
    """A data directory opened for its users alone, and locked against a broker meanwhile."""

    def __init__(self, data: Path) -> None:
        clock = SystemClock()
        self.users = Users(secrets.token_bytes(32))
        self._directory = LogDirectory(data, synced=True)
        try:
            log = self._directory.open_state(METADATA_TOPIC, clock.wall_ms())
            self._state = StateLog(log, self.users.replay, clock)
            self._state.load()
        except BaseException:
            self._directory.close()
            raise

    def commit(self, records: Sequence[StateRecord]) -> None:
        """Write records, and return when they are on disk."""
        self._state.append(records)
        self._state.log.sync()
        if self._state.log.error is not None:
            raise HeadwaterError(self._state.log.error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._directory.close()
