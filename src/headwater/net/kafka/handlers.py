"""Every general API and its handler."""

from __future__ import annotations

from headwater.net.kafka import cluster, configs, group_offsets, groups, metadata, offsets, topics
from headwater.net.kafka.api import Handler

HANDLERS: dict[int, Handler] = {}
for _module in (metadata, topics, configs, offsets, cluster, groups, group_offsets):
    HANDLERS.update(_module.HANDLERS)
