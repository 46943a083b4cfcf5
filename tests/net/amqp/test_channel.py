"""What channels hold for their clients."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from headwater.core.amqp import AmqpError
from headwater.net.amqp.channel import Channel


class _Many(dict[int, Any]):
    """So many messages that nobody may look at all of them."""

    def __iter__(self) -> NoReturn:
        raise AssertionError("all unacknowledged messages were looked at")


@pytest.fixture
def channel() -> Channel:
    connection: Any = SimpleNamespace(service=None, choked=False)
    made = Channel(connection, 1)
    made.unacked = _Many({tag: f"message {tag}" for tag in range(1, 10)})
    return made


def test_settling_some_looks_at_no_others(channel: Channel) -> None:
    taken: list[list[Any]] = [
        channel.take(tag, multiple=multiple) for tag, multiple in ((2, False), (4, True), (7, True))
    ]
    assert taken == [
        ["message 2"],
        ["message 1", "message 3", "message 4"],
        ["message 5", "message 6", "message 7"],
    ]
    with pytest.raises(AmqpError, match="unknown delivery tag 4"):
        channel.take(4, multiple=True)
    rest: list[Any] = channel.take(9, multiple=True)
    assert rest == ["message 8", "message 9"]
