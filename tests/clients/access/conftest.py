"""Brokers with locks on their doors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from clients.brokers import eventually
from headwater.testing.kafka import RealKafka
from headwater.testing.process import BrokerProcess, free_port

from .certificates import Authority, Certificate
from .secured import PASSWORD, USER, Secured, add_user, quote

SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
MECHANISMS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"


@pytest.fixture(scope="session")
def authority(openssl: str, tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Who signed the broker's certificate."""
    return Authority(openssl, tmp_path_factory.mktemp("authority"), "authority")


@pytest.fixture(scope="session")
def foreign_authority(openssl: str, tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Somebody whom nobody here trusts."""
    return Authority(openssl, tmp_path_factory.mktemp("foreign"), "foreign")


@pytest.fixture(scope="session")
def certificate(authority: Authority) -> Certificate:
    """The broker's certificate."""
    return authority.issue("broker")


def _tls(certificate: Certificate) -> tuple[str, ...]:
    return f"--tls-cert={certificate.cert}", f"--tls-key={certificate.key}"


@pytest.fixture(scope="session")
def ssl_broker(
    certificate: Certificate, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    """TLS, and nobody authenticates."""
    data = tmp_path_factory.mktemp("ssl") / "data"
    with BrokerProcess(data, settings=SETTINGS, options=_tls(certificate)) as ours:
        yield Secured("headwater", ours.host, ours.port, "SSL", authority.cert, ours.errors)


@pytest.fixture
def mutual_broker(certificate: Certificate, authority: Authority, tmp_path: Path) -> Iterator[Secured]:
    """TLS on which clients show certificates too; one for each test, since what it logs of one peer is limited."""
    data = tmp_path / "data"
    options = (*_tls(certificate), f"--tls-client-ca={authority.cert}")
    with BrokerProcess(data, settings=SETTINGS, options=options) as ours:
        yield Secured("headwater", ours.host, ours.port, "SSL", authority.cert, ours.errors)


@pytest.fixture(scope="session")
def sasl_ssl_broker(
    certificate: Certificate, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    """TLS, and clients authenticate with passwords."""
    data = tmp_path_factory.mktemp("sasl-ssl") / "data"
    add_user(data)
    with BrokerProcess(data, settings=SETTINGS, options=(*_tls(certificate), "--auth=sasl")) as ours:
        yield Secured("headwater", ours.host, ours.port, "SASL_SSL", authority.cert, ours.errors)


@pytest.fixture(scope="session")
def scram_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """No TLS, and therefore SCRAM only."""
    data = tmp_path_factory.mktemp("scram") / "data"
    add_user(data)
    with BrokerProcess(data, settings=SETTINGS, options=("--auth=sasl",)) as ours:
        yield Secured("headwater", ours.host, ours.port, "SASL_PLAINTEXT", None, ours.errors)


@pytest.fixture(scope="session", params=["headwater", "kafka"], ids=["on-headwater", "on-kafka"])
def sasl_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    """Clients authenticate with every mechanism, on Headwater and then on Kafka 4.3.0."""
    if request.param == "headwater":
        data = tmp_path_factory.mktemp("sasl") / "data"
        add_user(data)
        options = ("--auth=sasl", "--allow-plain-without-tls")
        with BrokerProcess(data, settings=SETTINGS, options=options) as ours:
            yield Secured("headwater", ours.host, ours.port, "SASL_PLAINTEXT", None, ours.errors)
        return
    request.getfixturevalue("java")
    plain, sasl, controller = free_port(), free_port(), free_port()
    with _kafka(plain, sasl, controller) as kafka:
        _add_to_kafka(kafka)
        yield Secured("kafka", kafka.host, sasl, "SASL_PLAINTEXT", None, kafka.errors)


def _kafka(plain: int, sasl: int, controller: int) -> RealKafka:
    addresses = f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl}"
    module = "org.apache.kafka.common.security"
    jaas = "listener.name.sasl_plaintext"
    kafka = RealKafka(
        properties={
            **SETTINGS,
            "listeners": f"{addresses},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": addresses,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
            "SASL_PLAINTEXT:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": MECHANISMS,
            f"{jaas}.plain.sasl.jaas.config": f"{module}.plain.PlainLoginModule required "
            f'user_{USER}="{quote(PASSWORD)}";',
            f"{jaas}.scram-sha-256.sasl.jaas.config": f"{module}.scram.ScramLoginModule required;",
            f"{jaas}.scram-sha-512.sasl.jaas.config": f"{module}.scram.ScramLoginModule required;",
        }
    )
    kafka.port = plain
    return kafka


def _add_to_kafka(kafka: RealKafka) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        change = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
        for future in admin.alter_user_scram_credentials([change]).values():
            future.result(20)
    # The controller answers before the broker has applied the change.
    eventually(lambda: _mechanisms(admin), lambda seen: seen == 2)


def _mechanisms(admin: AdminClient) -> int:
    everybody: Any = admin.describe_user_scram_credentials()
    found = everybody.result(20).get(USER)
    return 0 if found is None else len(found.scram_credential_infos)
