"""Who gets in by AMQP: TLS, passwords, and what a stranger can do."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pika
import pytest
from pamqp import commands
from pika.exceptions import AMQPConnectionError, ProbableAuthenticationError

from amqp_clients.brokers import broker_of
from amqp_clients.raw import PROTOCOL_HEADER, Raw, method, publish
from clients.access.certificates import Authority, Certificate
from clients.access.secured import PASSWORD, USER, add_user
from headwater.record.amqp.tables import encode_table
from headwater.testing.process import BrokerProcess, ProcessError

pytestmark = pytest.mark.real

HASTE = {
    "headwater.authentication.timeout.ms": "700",
    "headwater.max.unauthenticated.connections": "6",
    "max.connections": "12",
    "connection.failed.authentication.delay.ms": "300",
}


@pytest.fixture(scope="module")
def secured(certificate: Certificate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """TLS and passwords."""
    data = tmp_path_factory.mktemp("secured") / "data"
    add_user(data)
    options = (f"--tls-cert={certificate.cert}", f"--tls-key={certificate.key}", "--auth=sasl")
    with BrokerProcess(data, amqp=True, options=options, settings=HASTE) as broker:
        yield broker


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Passwords in clear text, as somebody has asked for."""
    data = tmp_path_factory.mktemp("plain") / "data"
    add_user(data)
    options = ("--auth=sasl", "--allow-plain-without-tls")
    with BrokerProcess(data, amqp=True, options=options, settings=HASTE) as broker:
        yield broker


def connect(
    process: BrokerProcess, authority: Authority | None, password: str = PASSWORD, user: str = USER
) -> pika.BlockingConnection:
    options: dict[str, Any] = {}
    if authority is not None:
        context = ssl.create_default_context(cafile=str(authority.cert))
        options["ssl_options"] = pika.SSLOptions(context, "localhost")
    credentials = pika.PlainCredentials(user, password)
    return pika.BlockingConnection(
        pika.ConnectionParameters(
            process.host, process.amqp_port, credentials=credentials, socket_timeout=10, **options
        )
    )


def test_a_message_goes_through_tls_with_a_password(secured: BrokerProcess, authority: Authority) -> None:
    with connect(secured, authority) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        queue = str(channel.queue_declare("", exclusive=True).method.queue)
        channel.basic_publish("", queue, b"x" * 500_000)
        assert channel.basic_get(queue, auto_ack=True)[2] == b"x" * 500_000


def test_a_wrong_password_is_answered_late_and_says_little(
    secured: BrokerProcess, authority: Authority
) -> None:
    for user, password in ((USER, "wrong"), ("nobody", PASSWORD)):
        began = time.monotonic()
        with pytest.raises(ProbableAuthenticationError, match="ACCESS_REFUSED"):
            connect(secured, authority, password, user)
        assert time.monotonic() - began >= 0.3
    assert "did not authenticate" in secured.errors()
    assert PASSWORD not in secured.errors()


def test_amqplain_is_another_way_to_say_the_same(plain: BrokerProcess) -> None:
    broker = broker_of(plain)
    for password, expected in ((PASSWORD, commands.Connection.Tune), ("wrong", commands.Connection.Close)):
        with Raw(broker) as raw:
            response = encode_table({"LOGIN": USER, "PASSWORD": password})[4:]
            start(raw, "AMQPLAIN", response)
            raw.expect(expected)


def start(raw: Raw, mechanism: str, response: bytes) -> None:
    raw.send(PROTOCOL_HEADER)
    said = raw.expect(commands.Connection.Start)
    assert mechanism in said.mechanisms.split()
    capabilities: Any = {"capabilities": {"authentication_failure_close": True}}
    answer = method(
        commands.Connection.StartOk(client_properties=capabilities, mechanism=mechanism, response="@@@@")
    )
    # pamqp takes text alone.
    marker = b"\x00\x00\x00\x04@@@@"
    whole = answer[7:-1].replace(marker, len(response).to_bytes(4, "big") + response)
    raw.send(b"\x01\x00\x00" + len(whole).to_bytes(4, "big") + whole + b"\xce")


def test_passwords_in_clear_text_have_to_be_asked_for(tmp_path: Path) -> None:
    add_user(tmp_path / "data")
    with pytest.raises(ProcessError, match="AMQP's passwords go in clear text: add --tls-cert"):
        BrokerProcess(tmp_path / "data", amqp=True, options=("--auth=sasl",)).start()


def test_listening_beyond_this_machine_needs_authentication(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path / "data", amqp=True, options=("--amqp=0.0.0.0:0",))
    with pytest.raises(ProcessError, match="nobody has to authenticate"):
        process.start()


def test_a_client_that_does_not_speak_tls_is_told_so_in_the_log(secured: BrokerProcess) -> None:
    with pytest.raises(AMQPConnectionError):
        connect(secured, None)
    eventually_logged(secured, "does not speak TLS")


def eventually_logged(process: BrokerProcess, text: str) -> None:
    deadline = time.monotonic() + 5
    while text not in process.errors():
        assert time.monotonic() < deadline, process.errors()
        time.sleep(0.05)


def test_who_does_not_finish_the_handshake_is_let_go(plain: BrokerProcess) -> None:
    broker = broker_of(plain)
    for sent in (b"", b"AMQP", PROTOCOL_HEADER):
        with socket.create_connection((broker.host, broker.port), timeout=10) as stranger:
            stranger.sendall(sent)
            began = time.monotonic()
            while stranger.recv(4096):
                pass
            assert time.monotonic() - began < 3
    eventually_logged(plain, "did not finish the handshake in time")


def test_strangers_are_few_and_connections_are_not_many(plain: BrokerProcess) -> None:
    broker = broker_of(plain)
    with ExitStack() as stack:
        strangers = [
            stack.enter_context(socket.create_connection((broker.host, broker.port), timeout=10))
            for _ in range(7)
        ]
        assert strangers[-1].recv(1) == b""
        time.sleep(1.3)
        friends = [connect(plain, None) for _ in range(12)]
        with pytest.raises(AMQPConnectionError):
            connect(plain, None)
        friends.pop().close()
        connect(plain, None).close()
        for friend in friends:
            friend.close()


def test_the_user_id_of_a_message_is_the_user_that_authenticated(plain: BrokerProcess) -> None:
    with connect(plain, None) as connection:
        channel = connection.channel()
        channel.basic_publish("", "nowhere", b"", pika.BasicProperties(user_id=USER))
        channel.basic_qos()
        channel.basic_publish("", "nowhere", b"", pika.BasicProperties(user_id="somebody"))
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="user_id property set to 'somebody'"):
            channel.basic_qos()


# -- memory ----------------------------------------------------------------------------------------


def test_messages_that_never_end_do_not_exhaust_memory(tmp_path: Path) -> None:
    """One client begins large messages on hundreds of channels, another one works as if nothing were."""
    settings = {"headwater.amqp.unfinished.max.bytes": "8000000"}
    with BrokerProcess(tmp_path / "data", amqp=True, settings=settings) as process:
        broker = broker_of(process)
        with Raw(broker) as raw, pika.BlockingConnection(pika.URLParameters(broker.url())) as friend:
            raw.open()
            frame = b"\x03%b" + (100_000).to_bytes(4, "big") + bytes(100_000) + b"\xce"
            closed = flood(raw, frame)
            assert (closed.reply_code, "messages that are arriving" in closed.reply_text) == (506, True)
            channel = friend.channel()
            channel.confirm_delivery()
            queue = str(channel.queue_declare("", exclusive=True).method.queue)
            channel.basic_publish("", queue, b"x" * 5_000_000)
            assert len(channel.basic_get(queue, auto_ack=True)[2]) == 5_000_000


def flood(raw: Raw, frame: bytes) -> Any:
    for number in range(1, 300):
        channel = number.to_bytes(2, "big")
        header = b"\x02" + channel + (14).to_bytes(4, "big") + b"\0\x3c\0\0"
        header += (100_000_000).to_bytes(8, "big") + b"\0\0\xce"
        raw.send(
            method(commands.Channel.Open(), number),
            method(commands.Basic.Publish(routing_key="q"), number),
            header,
            frame % channel,
        )
    while True:
        _, found = raw.receive()
        if isinstance(found, commands.Connection.Close):
            return found


def test_a_transaction_without_end_does_not_exhaust_memory(tmp_path: Path) -> None:
    settings = {"headwater.amqp.unfinished.max.bytes": "4000000"}
    with BrokerProcess(tmp_path / "data", amqp=True, settings=settings) as process:
        broker = broker_of(process)
        with pika.BlockingConnection(pika.URLParameters(broker.url())) as friend:
            channel = friend.channel()
            channel.tx_select()
            queue = str(channel.queue_declare("", exclusive=True).method.queue)
            for _ in range(3):
                for _ in range(30):
                    channel.basic_publish("", queue, b"x" * 100_000)
                channel.tx_commit()
            assert channel.queue_declare(queue, passive=True).method.message_count == 90
        with Raw(broker) as raw:
            raw.open().channel(1)
            raw.call(commands.Tx.Select(), commands.Tx.SelectOk, 1)
            raw.send(*[publish("q", b"x" * 100_000)] * 60)
            assert raw.expect(commands.Connection.Close).reply_code == 506


def test_tiny_frames_count_for_what_they_take(tmp_path: Path) -> None:
    settings = {"headwater.amqp.unfinished.max.bytes": "2000000"}
    with (
        BrokerProcess(tmp_path / "data", amqp=True, settings=settings) as process,
        Raw(broker_of(process)) as raw,
    ):
        raw.open()
        raw.send(
            method(commands.Channel.Open(), 1),
            method(commands.Basic.Publish(routing_key="q"), 1),
            b"\x02\0\x01\0\0\0\x0e\0\x3c\0\0" + (100_000_000).to_bytes(8, "big") + b"\0\0\xce",
        )
        raw.expect(commands.Channel.OpenOk, 1)
        raw.send(b"\x03\0\x01\0\0\0\x01x\xce" * 40_000)
        assert raw.expect(commands.Connection.Close).reply_code == 506
