"""Where a query's rows go: a topic, a view or a warehouse, exactly once, or a Python function, at least once."""

from __future__ import annotations

from headwater.pipeline.sinks.columns import SinkError
from headwater.pipeline.sinks.function import start_function
from headwater.pipeline.sinks.topic import start_topic, topic_settings
from headwater.pipeline.sinks.view import start_view
from headwater.pipeline.sinks.warehouse import start_warehouse

__all__ = [
    "SinkError",
    "start_function",
    "start_topic",
    "start_view",
    "start_warehouse",
    "topic_settings",
]
