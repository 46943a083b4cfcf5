import time

import pytest

from headwater.core.clock import SystemClock
from headwater.testing.clock import ManualClock


def test_system_clock_follows_the_machine() -> None:
    clock = SystemClock()
    assert abs(clock.wall_ms() - time.time() * 1000) < 1000
    before = clock.monotonic_ms()
    time.sleep(0.002)
    assert clock.monotonic_ms() > before


def test_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(1000)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (1000, 0)
    clock.advance(5)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (1005, 5)
    clock.jump(-100)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (905, 5)
    with pytest.raises(ValueError, match="forwards"):
        clock.advance(-1)
