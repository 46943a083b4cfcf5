"""What ends a query that reads a topic.

SourceError            the root of this package's tree
├── RecordsLost        records that the query still had to read are gone
└── TopicChanged       the topic was deleted, or is another one of the same name
"""

from __future__ import annotations

from headwater.core.errors import HeadwaterError

__all__ = ["RecordsLost", "SourceError", "TopicChanged"]


class SourceError(HeadwaterError):
    """A topic that cannot be read as declared."""


class RecordsLost(SourceError):
    """Retention has passed the checkpoint."""

    def __init__(self, topic: str, partition: int, wanted: int, first: int, end: int) -> None:
        super().__init__(
            f"{topic}-{partition}: the query goes on at offset {wanted}, but the topic now holds offsets {first} "
            f"to {end}: records were removed before they were read. To go on without them declare "
            'the topic with lost="skip"; to start over delete the checkpoint of the query'
        )
        self.partition = partition
        self.wanted = wanted
        self.first = first
        self.end = end


class TopicChanged(SourceError):
    """The topic of the checkpoint is not there any more."""
