"""Client quotas: told and changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater.broker.quotas import Alteration, Component
from headwater.core.errors import ErrorCode
from headwater.net.kafka.api import Answer, Handler, Request

if TYPE_CHECKING:
    from headwater.net.node import Node


async def describe_client_quotas(node: Node, request: Request, message: Any) -> Answer:
    """Tell the quotas of the entities that fit a filter."""
    components = [Component(each.entity_type, each.match_type, each.match) for each in message.components]
    found = node.throttle.quotas.describe(components, strict=message.strict)
    entries = [
        {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
            "values": [{"key": key, "value": float(value)} for key, value in values.items()],
        }
        for entity, values in found
    ]
    return {"error_code": ErrorCode.none, "error_message": None, "entries": entries}


async def alter_client_quotas(node: Node, request: Request, message: Any) -> Answer:
    """Set and remove quotas."""
    alterations = [
        Alteration(
            [(part.entity_type, part.entity_name) for part in entry.entity],
            [(op.key, None if op.remove else op.value) for op in entry.ops],
        )
        for entry in message.entries
    ]
    records, refused = node.throttle.quotas.alter(alterations)
    if not message.validate_only:
        await node.commit_topics(records)
    entries = [
        {
            "error_code": ErrorCode.none if refusal is None else refusal[0],
            "error_message": None if refusal is None else refusal[1],
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in alteration.entity],
        }
        for alteration, refusal in zip(alterations, refused, strict=True)
    ]
    return {"entries": entries}


HANDLERS: dict[int, Handler] = {48: describe_client_quotas, 49: alter_client_quotas}
