"""Users, and the SASL requests of clients that are past authentication or on a listener without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater.broker.access.scram import ScramMechanism
from headwater.broker.access.users import Deletion, Upsertion
from headwater.core.errors import ErrorCode
from headwater.net.kafka.api import Answer, Handler, Request

if TYPE_CHECKING:
    from headwater.net.node import Node

_MECHANISMS = {mechanism.value: mechanism for mechanism in ScramMechanism}


async def sasl_handshake(node: Node, request: Request, message: Any) -> Answer:
    """Refuse a handshake: the listener has no SASL, or the client is authenticated."""
    return {"error_code": ErrorCode.illegal_sasl_state, "mechanisms": ()}


async def sasl_authenticate(node: Node, request: Request, message: Any) -> Answer:
    """Refuse a token: the listener has no SASL, or the client is authenticated."""
    return {
        "error_code": ErrorCode.illegal_sasl_state,
        "error_message": "SaslAuthenticate request received after successful authentication",
        "auth_bytes": b"",
        "session_lifetime": 0,
    }


async def describe_user_scram_credentials(node: Node, request: Request, message: Any) -> Answer:
    """Tell which mechanisms users have credentials for, and how many iterations those have."""
    names = None if message.users is None else [user.name for user in message.users]
    results = []
    for name, found in node.users.describe(names):
        code, problem = (ErrorCode.none, None) if not isinstance(found, tuple) else found
        infos = (
            ()
            if isinstance(found, tuple)
            else [
                {"mechanism": mechanism.value, "iterations": credential.iterations}
                for mechanism, credential in found.items()
            ]
        )
        results.append(
            {"user": name, "error_code": code, "error_message": problem, "credential_infos": infos}
        )
    return {"throttle_time": 0, "error_code": ErrorCode.none, "error_message": None, "results": results}


async def alter_user_scram_credentials(node: Node, request: Request, message: Any) -> Answer:
    """Keep and forget credentials."""
    deletions = [Deletion(each.name, _MECHANISMS.get(each.mechanism)) for each in message.deletions]
    upsertions = [
        Upsertion(
            each.name,
            _MECHANISMS.get(each.mechanism),
            each.iterations,
            bytes(each.salt),
            bytes(each.salted_password),
        )
        for each in message.upsertions
    ]
    records, refused = node.users.alter(deletions, upsertions)
    await node.commit_topics(records)
    results = [
        {
            "user": user,
            "error_code": ErrorCode.none if refusal is None else refusal[0],
            "error_message": None if refusal is None else refusal[1],
        }
        for user, refusal in refused.items()
    ]
    return {"throttle_time": 0, "results": results}


HANDLERS: dict[int, Handler] = {
    17: sasl_handshake,
    36: sasl_authenticate,
    50: describe_user_scram_credentials,
    51: alter_user_scram_credentials,
}
