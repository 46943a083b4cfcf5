"""A group of the consumer protocol (KIP-848): all of it comes from records.

Three epochs drive it. The group's grows when who consumes what changes; the target assignment's
says for which group epoch it was computed; each member's says how far it has come towards it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from uuid import UUID

from headwater.broker.groups import records
from headwater.broker.groups.records import (
    Assignment,
    CurrentAssignment,
    MemberState,
    RecordKey,
    RecordKind,
    Subscription,
    TopicShape,
)
from headwater.core.errors import ApiError, ErrorCode

LEFT_EPOCH = -1
"""The epoch with which a member leaves for good."""
STATIC_LEFT_EPOCH = -2
"""The epoch with which a static member leaves for a while, and of its place until it is back."""

NO_SUBSCRIPTION = Subscription(None, None, "", "", frozenset(), None, -1, None)


@dataclass(frozen=True)
class ConsumerMember:
    """A member: what it wants, what it owns, and at which epoch."""

    member_id: str
    subscription: Subscription = NO_SUBSCRIPTION
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Assignment = field(default_factory=dict)
    pending_revocation: Assignment = field(default_factory=dict)

    def reconciled_to(self, epoch: int) -> bool:
        """Return whether the member owns what the target of `epoch` gives it."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def current(self) -> CurrentAssignment:
        """Return what is stored of the member's ownership."""
        return CurrentAssignment(
            self.epoch, self.previous_epoch, self.state, self.assigned, self.pending_revocation
        )


@dataclass
class ConsumerGroup:
    """A group of the consumer protocol."""

    group_id: str
    epoch: int = 0
    target_epoch: int = 0
    topics: dict[str, TopicShape] = field(default_factory=dict)
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    targets: dict[str, Assignment] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    owners: dict[tuple[UUID, int], str] = field(default_factory=dict)
    """Who has each partition, counting those that are still to be revoked."""
    seen_topics_version: int = -1
    """Which state of the broker's topics `topics` was last compared with; not stored."""

    @property
    def is_empty(self) -> bool:
        """Whether nobody is in the group."""
        return not self.members

    @property
    def state(self) -> str:
        """The state that clients are told."""
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        if all(m.reconciled_to(self.target_epoch) for m in self.members.values()):
            return "Stable"
        return "Reconciling"

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """Return the member that has this instance id."""
        member_id = None if instance_id is None else self.instances.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def subscribes_to(self, topic: str) -> bool:
        """Return whether a member consumes `topic`."""
        return topic in self.topics or any(topic in m.subscription.topic_names for m in self.members.values())

    def member(self, member_id: str) -> ConsumerMember:
        """Return a member, or raise UNKNOWN_MEMBER_ID."""
        try:
            return self.members[member_id]
        except KeyError:
            raise ApiError(
                ErrorCode.unknown_member_id,
                f"Member {member_id} is not a member of group {self.group_id}.",
            ) from None

    def identified(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """Return a member, or raise what Kafka answers to one that is not, or no longer, it."""
        if instance_id is None:
            return self.member(member_id)
        holder = self.static_member(instance_id)
        if holder is None:
            raise ApiError(ErrorCode.unknown_member_id, f"Instance id {instance_id} is unknown.")
        if holder.member_id != member_id:
            raise ApiError(
                ErrorCode.fenced_instance_id,
                f"Static member {member_id} with instance id {instance_id} "
                f"was fenced by member {holder.member_id}.",
            )
        return holder

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Return whether others still have something of what a member shall own."""
        return any(
            self.owners.get((topic, partition), member.member_id) != member.member_id
            for topic, partitions in self.targets.get(member.member_id, {}).items()
            for partition in partitions
        )

    def validate_epoch(self, member_id: str, epoch: int) -> None:
        """Raise what Kafka answers to a request about offsets whose member is at another epoch."""
        member = self.member(member_id)
        expected = member.epoch
        if epoch != expected and member.subscription.classic is not None:
            raise ApiError(
                ErrorCode.illegal_generation,
                f"The received generation id {epoch} does not match the expected member epoch {expected}.",
            )
        if epoch != expected:
            raise ApiError(
                ErrorCode.stale_member_epoch,
                f"The received member epoch {epoch} does not match the expected member epoch {expected}.",
            )

    def with_replaced(self, old_id: str, member: ConsumerMember) -> ConsumerGroup:
        """Return a copy in which `member` has the place of another."""
        copy = replace(
            self,
            members=dict(self.members),
            targets=dict(self.targets),
            instances=dict(self.instances),
            owners=dict(self.owners),
        )
        copy.drop_member(old_id)
        copy.put_member(member)
        copy.targets[member.member_id] = copy.targets.pop(old_id, {})
        return copy

    # What `replay` calls

    def put_member(self, member: ConsumerMember) -> None:
        """Take in a member, or its new state."""
        self._release(member.member_id)
        old = self.members.get(member.member_id)
        if old is not None and old.subscription.instance_id != member.subscription.instance_id:
            self.instances.pop(old.subscription.instance_id or "", None)
        self.members[member.member_id] = member
        if member.subscription.instance_id is not None:
            self.instances[member.subscription.instance_id] = member.member_id
        for assignment in (member.assigned, member.pending_revocation):
            for topic, partitions in assignment.items():
                for partition in partitions:
                    self.owners[topic, partition] = member.member_id

    def replay(self, key: RecordKey, value: bytes | None) -> None:
        """Apply a record about the group, except the one that ends it."""
        match key.kind:
            case RecordKind.CONSUMER_GROUP:
                if value is not None:
                    self.epoch = records.decode_epoch(value)
            case RecordKind.CONSUMER_PARTITIONS:
                self.topics = {} if value is None else records.decode_partitions(value)
            case RecordKind.CONSUMER_MEMBER:
                if value is None:
                    self.drop_member(key.member)
                else:
                    self._put_subscription(key.member, records.decode_member(value))
            case RecordKind.CONSUMER_TARGET_EPOCH:
                self.target_epoch = -1 if value is None else records.decode_epoch(value)
            case RecordKind.CONSUMER_TARGET_MEMBER:
                if value is None:
                    self.targets.pop(key.member, None)
                else:
                    self.targets[key.member] = records.decode_target(value)
            case _:
                self._put_current(key.member, None if value is None else records.decode_current(value))

    def _put_subscription(self, member_id: str, subscription: Subscription) -> None:
        """Set what a member wants."""
        member = self.members.get(member_id, ConsumerMember(member_id))
        self.put_member(replace(member, subscription=subscription))

    def _put_current(self, member_id: str, current: CurrentAssignment | None) -> None:
        """Set what a member owns; None when it owns nothing any more."""
        member = self.members.get(member_id)
        if current is None:
            if member is not None:
                self.put_member(ConsumerMember(member_id, member.subscription, LEFT_EPOCH, LEFT_EPOCH))
            return
        self.put_member(
            replace(
                member or ConsumerMember(member_id),
                epoch=current.epoch,
                previous_epoch=current.previous_epoch,
                state=current.state,
                assigned=current.assigned,
                pending_revocation=current.pending_revocation,
            )
        )

    def drop_member(self, member_id: str) -> None:
        """Let a member go."""
        self._release(member_id)
        member = self.members.pop(member_id, None)
        if member is not None:
            instance_id = member.subscription.instance_id
            # A static member that restarted may have its instance id under the new id already.
            if instance_id is not None and self.instances.get(instance_id) == member_id:
                del self.instances[instance_id]

    def _release(self, member_id: str) -> None:
        member = self.members.get(member_id)
        if member is None:
            return
        for assignment in (member.assigned, member.pending_revocation):
            for topic, partitions in assignment.items():
                for partition in partitions:
                    if self.owners.get((topic, partition)) == member_id:
                        del self.owners[topic, partition]
