"""TLS: clients that trust the broker's certificate talk to it, and nobody listens in or pretends."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pika
import pytest
from pika.exceptions import AMQPConnectionError

from clients.access.certificates import Authority
from headwater.testing.process import BrokerProcess, free_port
from headwater.testing.rabbitmq import RealRabbitMQ
from needs import need_rabbitmq

from .brokers import broker_of
from .pika_client import SECONDS, bodies, declare, publish

pytestmark = pytest.mark.real


@dataclass(frozen=True)
class Encrypted:
    """A broker that speaks TLS, and who signed its certificate."""

    host: str
    port: int
    authority: Authority

    def parameters(self, context: ssl.SSLContext) -> pika.ConnectionParameters:
        options = pika.SSLOptions(context, "localhost")
        return pika.ConnectionParameters(
            self.host, self.port, ssl_options=options, socket_timeout=SECONDS, connection_attempts=1
        )


@pytest.fixture(scope="module", params=["headwater", "rabbitmq"], ids=["on-headwater", "on-rabbitmq"])
def encrypted(
    request: pytest.FixtureRequest, openssl: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Encrypted]:
    """Either broker, with a certificate of its own."""
    authority = Authority(openssl, tmp_path_factory.mktemp("authority"), "authority")
    certificate = authority.issue("broker")
    data: Path = tmp_path_factory.mktemp("encrypted") / "data"
    if request.param == "headwater":
        options = (f"--tls-cert={certificate.cert}", f"--tls-key={certificate.key}")
        with BrokerProcess(data, amqp=True, options=options) as ours:
            broker = broker_of(ours)
            yield Encrypted(broker.host, broker.port, authority)
        return
    need_rabbitmq()
    port = free_port()
    settings = {
        "listeners.ssl.1": f"127.0.0.1:{port}",
        "ssl_options.cacertfile": str(authority.cert),
        "ssl_options.certfile": str(certificate.cert),
        "ssl_options.keyfile": str(certificate.key),
    }
    with RealRabbitMQ(data, settings=settings) as theirs:
        yield Encrypted(theirs.host, port, authority)


def test_who_trusts_the_broker_talks_to_it(encrypted: Encrypted) -> None:
    context = ssl.create_default_context(cafile=str(encrypted.authority.cert))
    connection = pika.BlockingConnection(encrypted.parameters(context))
    channel = connection.channel()
    queue = declare(channel)
    publish(channel, queue, *(b"%d" % each * 10_000 for each in range(10)))
    assert bodies(channel, queue, 10) == [b"%d" % each * 10_000 for each in range(10)]
    connection.close()


def test_who_does_not_trust_the_broker_leaves(encrypted: Encrypted) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        pika.BlockingConnection(encrypted.parameters(ssl.create_default_context()))


def test_who_speaks_no_tls_gets_nowhere(encrypted: Encrypted) -> None:
    with pytest.raises(AMQPConnectionError):
        pika.BlockingConnection(
            pika.ConnectionParameters(encrypted.host, encrypted.port, socket_timeout=3, connection_attempts=1)
        )
