"""What a broker counts while it works: plain integers, to be read when somebody asks for metrics."""

from __future__ import annotations

from collections import Counter

from headwater.core.histogram import Histogram
from headwater.wire.kafka.versions import Api


class Counters:
    """The counts of one broker since it started; they belong to the event loop's thread."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "connections_opened",
        "connections_refused",
        "errors",
        "fetch_seconds",
        "messages_confirmed",
        "messages_delivered",
        "messages_given_back",
        "messages_published",
        "messages_refused",
        "messages_returned",
        "messages_to_acknowledge",
        "produce_seconds",
        "record_bytes_in",
        "record_bytes_out",
        "records_in",
        "requests",
    )

    def __init__(self) -> None:
        self.requests = [0] * (max(Api) + 1)
        """By API key; a list, because a Counter's increment takes six times as long."""
        self.errors: Counter[tuple[int, int]] = Counter()
        """By API key and error code: for Produce and Fetch each partition, otherwise the whole request."""
        self.bytes_in = 0
        self.bytes_out = 0
        self.records_in = 0
        self.record_bytes_in = 0
        self.record_bytes_out = 0
        self.connections_opened = 0
        self.connections_refused = 0
        """Closed by the broker, for what the client sent or because there were too many."""
        self.messages_published = 0
        self.messages_delivered = 0
        self.messages_to_acknowledge = 0
        """Of those delivered; less what was given back, and what clients still hold, they are acknowledged."""
        self.messages_given_back = 0
        """Rejected, or delivered to a client that went away."""
        self.messages_confirmed = 0
        self.messages_refused = 0
        self.messages_returned = 0
        self.produce_seconds = Histogram()
        self.fetch_seconds = Histogram()
