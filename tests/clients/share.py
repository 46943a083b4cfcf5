"""A member of a share group, byte by byte."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from kio.schema.errors import ErrorCode

from .brokers import Broker, eventually
from .raw import Raw, topic_id

ACCEPT, RELEASE, REJECT, RENEW, GAP = 1, 2, 3, 4, 0
Ack = tuple[int, int, Sequence[int]]
"""The first and the last offset, and one type for all or one for each."""


@dataclass(frozen=True)
class Taken:
    """What a ShareFetch of one partition gave."""

    error: ErrorCode
    """Of the whole request, or of the partition."""
    acknowledged: ErrorCode | None
    """What became of the acknowledgements, None where the answer does not speak of the partition."""
    acquired: list[tuple[int, int, int]]
    """First and last offset and deliveries, neighbours joined."""
    size: int


def begin_at(raw: Raw, group: str, topic: str, offset: int = 0) -> None:
    """Let a group begin to read a topic's first partition at an offset."""
    partitions = [{"partition_index": 0, "start_offset": offset}]
    eventually(
        lambda: raw.call(
            "alter_share_group_offsets",
            0,
            group_id=group,
            topics=[{"topic_name": topic, "partitions": partitions}],
        ),
        # Kafka makes the topic of share states for its first group.
        lambda seen: (
            bool(seen.error_code == ErrorCode.none)
            and all(p.error_code == ErrorCode.none for t in seen.responses for p in t.partitions)
        ),
    )


class Member:
    """One member with a connection of its own, on the first partition of a topic."""

    def __init__(self, broker: Broker, group: str, topic: str) -> None:
        self.raw = Raw(broker)
        self.group, self.topic = group, topic
        self.id = str(uuid.uuid4())
        self.epoch = 0
        self.session = 0
        try:
            self.topic_id = topic_id(self.raw, topic)
        except BaseException:
            self.raw.close()
            raise

    def beat(self, epoch: int | None = None, **changes: Any) -> Any:
        """Send a heartbeat, of the member's epoch unless another is given."""
        names = [self.topic] if (self.epoch if epoch is None else epoch) == 0 else None
        fields: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.id,
            "member_epoch": self.epoch if epoch is None else epoch,
            "rack_id": None,
            "subscribed_topic_names": names,
        }
        answer = self.raw.call("share_group_heartbeat", 1, **(fields | changes))
        if answer.error_code == ErrorCode.none:
            self.epoch = answer.member_epoch
        return answer

    def join(self) -> Self:
        """Join, and wait until the partition is assigned."""
        eventually(self.beat, lambda seen: bool(seen.assignment and seen.assignment.topic_partitions))
        return self

    def fetch(self, *acks: Ack, session: int | None = None, version: int = 2, **changes: Any) -> Taken:
        """Acknowledge, and take records, or wait shortly for some."""
        number = self.session if session is None else session
        wanted = [] if number > 0 and not acks else self._topics(acks)
        fields: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.id,
            "share_session_epoch": number,
            "max_wait": 300,
            "min_bytes": 1,
            "max_bytes": 1_000_000,
            "max_records": 500,
            "batch_size": 500,
            "topics": wanted,
        }
        answer = self.raw.call("share_fetch", version, **(fields | changes))
        if session is None and answer.error_code == ErrorCode.none:
            self.session += 1
        found = [part for topic in answer.responses for part in topic.partitions]
        if not found:
            return Taken(answer.error_code, None, [], 0)
        [part] = found
        return Taken(
            part.error_code,
            ErrorCode(part.acknowledge_error_code),
            _joined(part.acquired_records),
            len(part.records or b""),
        )

    def take(self, *acks: Ack, **changes: Any) -> list[tuple[int, int, int]]:
        """Fetch until there are records, and return which."""
        first = self.fetch(*acks, **changes)
        if first.acquired:
            return first.acquired
        return eventually(lambda: self.fetch(**changes).acquired, bool)

    def acknowledge(
        self, *acks: Ack, session: int | None = None, version: int = 2, **changes: Any
    ) -> tuple[ErrorCode, ErrorCode | None]:
        """Acknowledge, and return the code of the request and of the partition."""
        number = self.session if session is None else session
        fields: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.id,
            "share_session_epoch": number,
            "topics": self._topics(acks),
        }
        answer = self.raw.call("share_acknowledge", version, **(fields | changes))
        if session is None and answer.error_code == ErrorCode.none:
            self.session += 1
        codes = [part.error_code for topic in answer.responses for part in topic.partitions]
        return answer.error_code, codes[0] if codes else None

    def _topics(self, acks: Sequence[Ack]) -> list[dict[str, Any]]:
        batches = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": list(types)}
            for first, last, types in acks
        ]
        partitions = [{"partition_index": 0, "acknowledgement_batches": batches}]
        return [{"topic_id": self.topic_id, "partitions": partitions}]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.raw.close()


def _joined(acquired: Sequence[Any]) -> list[tuple[int, int, int]]:
    """Kafka tells of single records where it has treated them apart before."""
    joined: list[tuple[int, int, int]] = []
    for each in acquired:
        first, last, deliveries = int(each.first_offset), int(each.last_offset), int(each.delivery_count)
        if joined and joined[-1][1] + 1 == first and joined[-1][2] == deliveries:
            joined[-1] = joined[-1][0], last, deliveries
        else:
            joined.append((first, last, deliveries))
    return joined
