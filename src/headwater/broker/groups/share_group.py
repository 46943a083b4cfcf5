"""A share group (KIP-932): all of it comes from records.

Members have what the target assignment gives them as soon as they ask: a partition may have several
members, so that nobody has to give anything up first.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from uuid import UUID

from headwater.broker.groups import records, share_records
from headwater.broker.groups.records import Assignment, RecordKey, RecordKind, Subscription
from headwater.broker.groups.share_records import SharedTopic
from headwater.core.errors import ApiError, ErrorCode

_NO_SUBSCRIPTION = Subscription(None, None, "", "", frozenset(), None, -1, None)


@dataclass(frozen=True)
class ShareMember:
    """A member: what it wants, what it has, and at which epoch."""

    member_id: str
    subscription: Subscription = _NO_SUBSCRIPTION
    epoch: int = 0
    previous_epoch: int = -1
    assigned: Assignment = field(default_factory=dict)


@dataclass
class ShareGroup:
    """A share group."""

    group_id: str
    epoch: int = 0
    target_epoch: int = 0
    topics_hash: int = 0
    """Of the topics that the assignment is for."""
    members: dict[str, ShareMember] = field(default_factory=dict)
    targets: dict[str, Assignment] = field(default_factory=dict)
    shared: dict[UUID, SharedTopic] = field(default_factory=dict)
    """The topics that the group shares, or has shared."""
    seen_topics_version: int = -1
    """Which state of the broker's topics the hash was last compared with; not stored."""

    @property
    def is_empty(self) -> bool:
        """Whether nobody is in the group."""
        return not self.members

    @property
    def state(self) -> str:
        """The state that clients are told."""
        return "Stable" if self.members else "Empty"

    def subscribes_to(self, topic: str) -> bool:
        """Return whether a member consumes `topic`."""
        return any(topic in member.subscription.topic_names for member in self.members.values())

    def member(self, member_id: str) -> ShareMember:
        """Return a member, or raise UNKNOWN_MEMBER_ID."""
        try:
            return self.members[member_id]
        except KeyError:
            raise ApiError(
                ErrorCode.unknown_member_id,
                f"Member {member_id} is not a member of group {self.group_id}.",
            ) from None

    def replay(self, key: RecordKey, value: bytes | None) -> None:
        """Apply a record about the group, except the one that ends it."""
        match key.kind:
            case RecordKind.SHARE_GROUP:
                if value is not None:
                    self.epoch, self.topics_hash = share_records.decode_share_group(value)
            case RecordKind.SHARE_MEMBER:
                if value is None:
                    self.members.pop(key.member, None)
                else:
                    self._put(key.member, subscription=share_records.decode_share_member(value))
            case RecordKind.SHARE_TARGET_EPOCH:
                self.target_epoch = -1 if value is None else records.decode_epoch(value)
            case RecordKind.SHARE_TARGET_MEMBER:
                if value is None:
                    self.targets.pop(key.member, None)
                else:
                    self.targets[key.member] = records.decode_target(value)
            case RecordKind.SHARED_TOPICS:
                self.shared = {} if value is None else share_records.decode_shared_topics(value)
            case _:
                if value is not None:
                    epoch, previous, assigned = share_records.decode_share_current(value)
                    self._put(key.member, epoch=epoch, previous_epoch=previous, assigned=assigned)

    def _put(self, member_id: str, **changes: object) -> None:
        member = self.members.get(member_id) or ShareMember(member_id)
        self.members[member_id] = replace(member, **changes)  # type: ignore[arg-type]
