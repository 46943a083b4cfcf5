"""Every general API and its handler."""

from __future__ import annotations

from headwater.net.kafka import (
    access,
    cluster,
    configs,
    group_offsets,
    groups,
    metadata,
    offsets,
    quotas,
    share_acks,
    share_groups,
    topics,
    transactions,
)
from headwater.net.kafka.api import Handler

HANDLERS: dict[int, Handler] = {}
for _module in (
    access,
    metadata,
    topics,
    configs,
    offsets,
    cluster,
    groups,
    group_offsets,
    share_acks,
    share_groups,
    quotas,
    transactions,
):
    HANDLERS.update(_module.HANDLERS)
