"""Clients of every kind over TLS and SASL: records in, records out, and an error that says what is wrong."""

from __future__ import annotations

import ssl
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from clients.brokers import eventually, unique
from clients.confluent import consumer, produce, take
from clients.tools import CONSOLE_CONSUMER, CONSOLE_PRODUCER, run_tool
from headwater.testing.jars import KAFKA_4_3

from .certificates import Authority
from .secured import PASSWORD, Secured

with warnings.catch_warnings():
    # It reads its schemas, when it is imported, with a function that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer

pytestmark = [pytest.mark.real, pytest.mark.filterwarnings("ignore::DeprecationWarning:kafka")]

EVERY_WAY = [
    pytest.param("ssl_broker", "", id="SSL"),
    pytest.param("scram_broker", "SCRAM-SHA-256", id="SASL_PLAINTEXT-SCRAM-SHA-256"),
    pytest.param("scram_broker", "SCRAM-SHA-512", id="SASL_PLAINTEXT-SCRAM-SHA-512"),
    pytest.param("sasl_ssl_broker", "PLAIN", id="SASL_SSL-PLAIN"),
    pytest.param("sasl_ssl_broker", "SCRAM-SHA-256", id="SASL_SSL-SCRAM-SHA-256"),
    pytest.param("sasl_ssl_broker", "SCRAM-SHA-512", id="SASL_SSL-SCRAM-SHA-512"),
]
# Small ones, and one that is more than the receive buffer and many TLS records.
VALUES = [b"first", b"x" * 900_000, b"last"]


@pytest.fixture
def secured(request: pytest.FixtureRequest, fixture: str) -> Secured:
    found: Secured = request.getfixturevalue(fixture)
    return found


def context(secured: Secured) -> dict[str, Any]:
    if secured.ca is None:
        return {}
    return {"ssl_context": ssl.create_default_context(cafile=str(secured.ca))}


@pytest.mark.parametrize(("fixture", "mechanism"), EVERY_WAY)
def test_confluent(secured: Secured, mechanism: str) -> None:
    topic = unique("confluent")
    config = secured.confluent(mechanism)
    deliveries = produce(secured, topic, VALUES, config=config)
    assert [delivery.error for delivery in deliveries] == [None] * 3
    with consumer(secured, unique("group"), **{k.replace(".", "_"): v for k, v in config.items()}) as made:
        made.subscribe([topic])
        assert [message.value() for message in take(made, 3)] == VALUES


@pytest.mark.parametrize(("fixture", "mechanism"), EVERY_WAY)
def test_kafka_python(secured: Secured, mechanism: str) -> None:
    topic = unique("kafka-python")
    arguments = secured.python(mechanism) | context(secured)
    producer = KafkaProducer(**arguments)
    for value in VALUES:
        producer.send(topic, value, partition=0).get(20)
    producer.close()
    reader = KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=20_000, **arguments)
    assert [next(reader).value for _ in VALUES] == VALUES
    reader.close()


@pytest.mark.parametrize(("fixture", "mechanism"), EVERY_WAY)
async def test_aiokafka(secured: Secured, mechanism: str) -> None:
    topic = unique("aiokafka")
    arguments = secured.python(mechanism) | context(secured)
    async with AIOKafkaProducer(**arguments) as producer:
        for value in VALUES:
            await producer.send_and_wait(topic, value)
    async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **arguments) as reader:
        assert [(await reader.getone()).value for _ in VALUES] == VALUES


@pytest.mark.parametrize(
    ("fixture", "mechanism"),
    [EVERY_WAY[0], EVERY_WAY[2], EVERY_WAY[3], EVERY_WAY[4]],
)
def test_java(java: str, secured: Secured, mechanism: str, tmp_path: Path) -> None:
    topic = unique("java")
    file = secured.java(tmp_path / "client.properties", mechanism)

    def run(tool: str, *arguments: str, given: str = "") -> str:
        done = run_tool(KAFKA_4_3, tool, "--bootstrap-server", secured.bootstrap, *arguments, given=given)
        assert done.status == 0, done
        return done.output

    run(CONSOLE_PRODUCER, "--topic", topic, "--command-config", str(file), given="one\ntwo\n")
    read = run(
        CONSOLE_CONSUMER, "--topic", topic, "--command-config", str(file),
        "--from-beginning", "--max-messages", "2", "--timeout-ms", "20000",
    )  # fmt: skip
    assert read.splitlines() == ["one", "two"]


def error_of(config: dict[str, Any]) -> KafkaError:
    """Return the first error that librdkafka tells of while it cannot connect."""
    seen: list[KafkaError] = []
    listening: dict[str, Any] = {**config, "error_cb": seen.append, "log_level": 0}
    admin = AdminClient(listening)
    eventually(lambda: admin.poll(0.1) or seen, bool)
    return seen[0]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_and_an_unknown_user_get_the_same_error(
    sasl_broker: Secured, mechanism: str
) -> None:
    told = []
    for config in (
        sasl_broker.confluent(mechanism, "wrong"),
        sasl_broker.confluent(mechanism, user="nobody"),
    ):
        error = error_of(config)
        assert error.code() == KafkaError._AUTHENTICATION
        told.append(error.str().partition("error: ")[2].partition(" (after")[0])
    assert told[0] == told[1]
    assert told[0] == (
        "Authentication failed: Invalid username or password"
        if mechanism == "PLAIN"
        else f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
    )
    if sasl_broker.name == "headwater":
        log = sasl_broker.errors()
        assert f"'nobody' did not authenticate with {mechanism}" in log
        assert PASSWORD not in log


def test_a_mechanism_that_is_not_offered(scram_broker: Secured) -> None:
    error = error_of(scram_broker.confluent("PLAIN"))
    assert error.code() == KafkaError._AUTHENTICATION
    assert "PLAIN" in error.str()
    assert "SCRAM-SHA-256" in error.str()


async def test_aiokafka_does_not_start_with_a_wrong_password(scram_broker: Secured) -> None:
    producer = AIOKafkaProducer(**scram_broker.python(password="wrong"))
    with pytest.raises(KafkaConnectionError):
        await producer.start()
    await producer.stop()


def test_a_client_that_does_not_authenticate(scram_broker: Secured) -> None:
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": scram_broker.bootstrap, "log_level": 0}).list_topics(timeout=2)
    assert "METADATA is not for clients that have not authenticated" in scram_broker.errors()


# -- certificates ------------------------------------------------------------------------------


def shown(secured: Secured, authority: Authority, name: str, *, days: int = 2) -> dict[str, Any]:
    made = authority.issue(name, days=days)
    return secured.confluent() | {
        "ssl.certificate.location": str(made.cert),
        "ssl.key.location": str(made.key),
    }


def test_a_client_with_a_certificate_gets_in(mutual_broker: Secured, authority: Authority) -> None:
    config = shown(mutual_broker, authority, "client")
    [delivery] = produce(mutual_broker, unique("mutual"), [b"v"], config=config)
    assert delivery.error is None


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        pytest.param(
            lambda secured, _own, _foreign: secured.confluent(), "showed no certificate", id="no certificate"
        ),
        pytest.param(
            lambda secured, _own, foreign: shown(secured, foreign, "stranger"),
            "certificate was refused: unable to get local issuer certificate",
            id="foreign certificate",
        ),
        pytest.param(
            lambda secured, own, _foreign: shown(secured, own, "late", days=0),
            "certificate was refused: certificate has expired",
            id="expired certificate",
        ),
    ],
)
def test_a_client_without_a_good_certificate_does_not(
    mutual_broker: Secured,
    authority: Authority,
    foreign_authority: Authority,
    make: Callable[[Secured, Authority, Authority], dict[str, Any]],
    reason: str,
) -> None:
    config = make(mutual_broker, authority, foreign_authority)
    with pytest.raises(KafkaException):
        AdminClient({**config, "log_level": 0}).list_topics(timeout=2)
    assert reason in mutual_broker.errors()


def test_a_client_does_not_trust_a_foreign_broker(ssl_broker: Secured, foreign_authority: Authority) -> None:
    error = error_of(ssl_broker.confluent() | {"ssl.ca.location": str(foreign_authority.cert)})
    assert error.code() == KafkaError._SSL
