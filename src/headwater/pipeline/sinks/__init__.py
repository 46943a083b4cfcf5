"""Where a query's rows go: a topic or a view, exactly once, or a Python function, at least once."""

from __future__ import annotations

from headwater.pipeline.sinks.columns import SinkError
from headwater.pipeline.sinks.function import start_function
from headwater.pipeline.sinks.topic import start_topic, topic_settings
from headwater.pipeline.sinks.view import start_view

__all__ = ["SinkError", "start_function", "start_topic", "start_view", "topic_settings"]
