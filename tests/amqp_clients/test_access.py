"""Passwords: who has the right one is let in, and who has not is told so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pika
import pytest
from pamqp import commands
from pika.exceptions import ProbableAuthenticationError

from clients.access.secured import add_user
from headwater.testing.process import BrokerProcess

from .brokers import Broker, broker_of
from .pika_client import bodies, connected, declare, opened, publish
from .raw import Closed, Raw, method

pytestmark = pytest.mark.real

PASSWORD = "guest"


@dataclass(frozen=True)
class Guarded:
    """A broker that asks for passwords, and its one user."""

    broker: Broker
    user: str = "guest"

    def credentials(self, password: str = PASSWORD) -> pika.PlainCredentials:
        return pika.PlainCredentials(self.user, password)


@pytest.fixture(scope="module")
def guarded(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """RabbitMQ as it is, and Headwater with --auth sasl."""
    if not broker.is_headwater:
        yield Guarded(broker)
        return
    data: Path = tmp_path_factory.mktemp("guarded") / "data"
    add_user(data, "guest", PASSWORD)
    options = ("--auth=sasl", "--allow-plain-without-tls")
    with BrokerProcess(data, amqp=True, options=options) as process:
        yield Guarded(broker_of(process))


def test_the_right_password_opens(guarded: Guarded) -> None:
    with opened(guarded.broker, credentials=guarded.credentials()) as channel:
        queue = declare(channel)
        publish(channel, queue, b"m", user_id=guarded.user)
        assert bodies(channel, queue, 1) == [b"m"]


@pytest.mark.parametrize(
    ("user", "password"), [("guest", "wrong"), ("nobody", PASSWORD), ("guest", ""), ("", "")]
)
def test_a_wrong_password_is_refused(guarded: Guarded, user: str, password: str) -> None:
    with (
        pytest.raises(ProbableAuthenticationError) as refused,
        connected(guarded.broker, credentials=pika.PlainCredentials(user, password)),
    ):
        pass
    assert "403" in str(refused.value)
    assert (
        "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. "
        "For details see the broker logfile." in str(refused.value)
    )


def test_who_cannot_be_told_is_put_out_without_a_word(guarded: Guarded) -> None:
    """A client has to say that it understands connection.close at this point."""
    with Raw(guarded.broker) as raw:
        raw.start(response="\0guest\0wrong")
        with pytest.raises(Closed):
            raw.receive()


def test_amqplain_asks_for_the_password_too(guarded: Guarded) -> None:
    wrong = b"\x05LOGINS\x00\x00\x00\x05guest\x08PASSWORDS\x00\x00\x00\x05wrong".decode()
    capable = {"capabilities": {"authentication_failure_close": True}}
    with Raw(guarded.broker) as raw:
        raw.start(mechanism="AMQPLAIN", response=wrong, client_properties=capable)
        closing = raw.expect(commands.Connection.Close)
        assert (closing.reply_code, closing.reply_text) == (
            403,
            "ACCESS_REFUSED - Login was refused using authentication mechanism AMQPLAIN. "
            "For details see the broker logfile.",
        )


def test_nothing_is_open_before_the_password(guarded: Guarded) -> None:
    with Raw(guarded.broker) as raw:
        raw.send(b"AMQP\x00\x00\x09\x01")
        raw.expect(commands.Connection.Start)
        raw.send(method(commands.Connection.TuneOk(0, 0, 0)), method(commands.Connection.Open()))
        with pytest.raises(Closed):
            raw.receive()
