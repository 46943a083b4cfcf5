"""Users made, changed and removed by Kafka's own tools, on Headwater and on Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from clients.brokers import eventually, unique
from clients.raw import Raw
from clients.tools import CONFIGS, run_tool
from headwater.testing.jars import KAFKA_4_3

from .secured import PASSWORD, USER, Secured

pytestmark = pytest.mark.real

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512


@pytest.fixture
def admin(sasl_broker: Secured) -> AdminClient:
    return AdminClient(sasl_broker.confluent("SCRAM-SHA-256"))


def upsertion(user: str, mechanism: Any = SHA_256, iterations: int = 4096) -> UserScramCredentialUpsertion:
    return UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, iterations), b"secret")


def described(admin: AdminClient, user: str) -> dict[str, int]:
    everybody: Any = admin.describe_user_scram_credentials()
    found = everybody.result(20).get(user)
    infos = [] if found is None else found.scram_credential_infos
    return {info.mechanism.name: info.iterations for info in infos}


def alter(admin: AdminClient, *changes: Any) -> None:
    for future in admin.alter_user_scram_credentials(list(changes)).values():
        future.result(20)


def refusal(admin: AdminClient, *changes: Any) -> tuple[int, str]:
    with pytest.raises(KafkaException) as refused:
        alter(admin, *changes)
    error = refused.value.args[0]
    return error.code(), error.str()


def test_a_user_is_made_and_gets_in_and_is_removed(sasl_broker: Secured, admin: AdminClient) -> None:
    user = unique("user")
    alter(admin, upsertion(user))
    eventually(lambda: described(admin, user), lambda seen: seen == {"SCRAM_SHA_256": 4096})
    alter(admin, upsertion(user, SHA_512, 8192))
    eventually(
        lambda: described(admin, user), lambda seen: seen == {"SCRAM_SHA_256": 4096, "SCRAM_SHA_512": 8192}
    )
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        client = AdminClient(sasl_broker.confluent(mechanism, "secret", user))
        assert client.list_topics(timeout=10).brokers
    alter(admin, UserScramCredentialDeletion(user, SHA_256))
    eventually(lambda: described(admin, user), lambda seen: seen == {"SCRAM_SHA_512": 8192})
    alter(admin, UserScramCredentialDeletion(user, SHA_512))
    eventually(lambda: described(admin, user), lambda seen: seen == {})


def test_refusals(admin: AdminClient) -> None:
    user = unique("user")
    unacceptable = KafkaError.UNACCEPTABLE_CREDENTIAL
    assert refusal(admin, upsertion(user, iterations=4095)) == (unacceptable, "Too few iterations")
    assert refusal(admin, upsertion(user, iterations=16385)) == (unacceptable, "Too many iterations")
    assert refusal(admin, UserScramCredentialDeletion(user, SHA_256)) == (
        KafkaError.RESOURCE_NOT_FOUND,
        "Attempt to delete a user credential that does not exist",
    )
    assert refusal(admin, upsertion(user), upsertion(user, SHA_512)) == (
        KafkaError.DUPLICATE_RESOURCE,
        "A user credential cannot be altered twice in the same request",
    )
    assert described(admin, user) == {}


def test_requests_that_no_client_sends(sasl_broker: Secured) -> None:
    with Raw(sasl_broker) as raw:
        raw.call("sasl_handshake", 1, mechanism="PLAIN")
        raw.call("sasl_authenticate", 2, auth_bytes=f"\0{USER}\0{PASSWORD}".encode())
        change = {"iterations": 4096, "salt": b"s", "salted_password": b"p"}
        answer = raw.call(
            "alter_user_scram_credentials", 0,
            deletions=[{"name": "", "mechanism": 1}],
            upsertions=[{"name": "x", "mechanism": 9, **change}],
        )  # fmt: skip
        results = {each.user: (each.error_code.name, each.error_message) for each in answer.results}
        assert results == {
            "": ("unacceptable_credential", "Username must not be empty"),
            "x": ("unsupported_sasl_mechanism", "Unknown SCRAM mechanism"),
        }
        answer = raw.call(
            "describe_user_scram_credentials", 0, users=[{"name": USER}, {"name": USER}, {"name": "nobody"}]
        )
        results = {each.user: (each.error_code.name, each.error_message) for each in answer.results}
        assert results == {
            USER: (
                "duplicate_resource",
                f"Cannot describe SCRAM credentials for the same user twice in a single request: {USER}",
            ),
            "nobody": (
                "resource_not_found",
                "Attempt to describe a user credential that does not exist: nobody",
            ),
        }
        everybody = raw.call("describe_user_scram_credentials", 0, users=None)
        assert USER in {each.user for each in everybody.results}


def test_kafka_configs(java: str, sasl_broker: Secured, admin: AdminClient, tmp_path: Path) -> None:
    user = unique("user")
    file = sasl_broker.java(tmp_path / "admin.properties", "SCRAM-SHA-256")

    def configs(*arguments: str) -> str:
        done = run_tool(
            KAFKA_4_3, CONFIGS, "--bootstrap-server", sasl_broker.bootstrap, "--command-config", str(file),
            "--entity-type", "users", "--entity-name", user, *arguments,
        )  # fmt: skip
        assert done.status == 0, done
        return done.output

    configs("--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=secret]")
    eventually(lambda: described(admin, user), lambda seen: seen == {"SCRAM_SHA_256": 8192})
    assert AdminClient(sasl_broker.confluent("SCRAM-SHA-256", "secret", user)).list_topics(timeout=10).brokers
    configs("--alter", "--delete-config", "SCRAM-SHA-256")
    eventually(lambda: described(admin, user), lambda seen: seen == {})
