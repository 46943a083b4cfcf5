"""The form of dead letters, and a topic that is too small for one."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from headwater.client import BrokerError
from headwater.client import dead_letters as module
from headwater.client.dead_letters import letter, send_letters
from headwater.client.topic_settings import DEAD_LETTERS, MAX_RECORD_BYTES
from headwater.core.errors import ErrorCode
from headwater.record.records import Record


class FakeCluster:
    def __init__(self) -> None:
        self.made: list[tuple[Any, ...]] = []

    def ensure_topic(self, *topic: Any) -> None:
        self.made.append(topic)


def test_a_letter_says_where_its_record_lies_and_holds_all_of_it() -> None:
    made = letter("no JSON", "users", 2, 17, 1000, b"k", None, [("h", b"x"), ("n", None)])
    assert (made.key, made.timestamp) == (b"users/2/17", 1000)
    assert json.loads(made.value or b"") == {
        "reason": "no JSON", "topic": "users", "partition": 2, "offset": 17, "timestamp": 1000,
        "key": base64.b64encode(b"k").decode(), "value": None,
        "headers": [["h", base64.b64encode(b"x").decode()], ["n", None]],
    }  # fmt: skip
    assert letter("r", "t", 0, 0, -1, None, b"").timestamp == 0


def test_the_largest_row_fits_into_its_letter() -> None:
    """The topic's limit is for the letter of a row that is as large as a table's topic takes."""
    overhead = 10_000
    assert 4 * MAX_RECORD_BYTES // 3 + overhead < int(DEAD_LETTERS["max.message.bytes"])


def test_the_topic_is_made_for_the_first_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Record] = []
    monkeypatch.setattr(module, "produce", lambda cluster, to, letters: sent.extend(letters))
    cluster: Any = FakeCluster()
    send_letters(cluster, "shop.dead", [])
    assert cluster.made == []
    send_letters(cluster, "shop.dead", [letter("r", "t", 0, 0, 0, None, b"")])
    assert cluster.made == [("shop.dead", 1, DEAD_LETTERS)]
    assert [each.key for each in sent] == [b"t/0/0"]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (ErrorCode.message_too_large, r"headwater topics alter shop\.dead -c max\.message\.bytes="),
        (ErrorCode.topic_authorization_failed, "denied"),
    ],
)
def test_what_the_broker_refuses(monkeypatch: pytest.MonkeyPatch, code: ErrorCode, said: str) -> None:
    def refuse(*_: Any) -> None:
        raise BrokerError(code, "shop.dead-0", "denied")

    monkeypatch.setattr(module, "produce", refuse)
    cluster: Any = FakeCluster()
    with pytest.raises(BrokerError, match=said) as raised:
        send_letters(cluster, "shop.dead", [letter("r", "t", 0, 0, 0, None, b"")])
    assert raised.value.code is code
