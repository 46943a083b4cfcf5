"""The broker's own logs: what is said of one that does not read."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.broker.state import StateRecord
from headwater.log.directory import LogDirectory
from headwater.log.errors import DamagedState
from headwater.net.state_log import StateLog
from headwater.testing.clock import ManualClock


def opened(root: Path, replayed: list[StateRecord]) -> tuple[LogDirectory, StateLog]:
    clock = ManualClock()
    directory = LogDirectory(root, synced=True)
    return directory, StateLog(directory.open_state("things", clock.wall_ms()), replayed.append, clock)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("left", [0, 40, -1])
def test_a_damaged_log_is_named_with_what_to_do(tmp_path: Path, left: int) -> None:
    directory, log = opened(tmp_path, [])
    log.append([StateRecord(b"name", b"value")])
    directory.close()
    file = tmp_path / "state" / "things" / f"{0:020d}.log"
    file.write_bytes(file.read_bytes()[:left])
    replayed: list[StateRecord] = []
    directory, log = opened(tmp_path, replayed)
    with pytest.raises(DamagedState, match=f"{file.parent} is damaged at offset 0.*restore"):
        log.load()
    assert replayed == []
    directory.close()
