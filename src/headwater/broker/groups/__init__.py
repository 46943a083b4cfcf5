"""Consumer groups and committed offsets, as a state machine that Kafka's clients know."""

from headwater.broker.groups.classic import JoinRequest, MemberIdentity, SyncRequest
from headwater.broker.groups.consumer_heartbeat import ConsumerHeartbeat, ConsumerReply
from headwater.broker.groups.coordinator import GroupCoordinator
from headwater.broker.groups.offsets import OffsetCommit, PartitionCommit
from headwater.broker.groups.outcome import JoinReply, Moment, Outcome, SyncReply
from headwater.broker.groups.settings import GROUP_SETTINGS

__all__ = [
    "GROUP_SETTINGS",
    "ConsumerHeartbeat",
    "ConsumerReply",
    "GroupCoordinator",
    "JoinReply",
    "JoinRequest",
    "MemberIdentity",
    "Moment",
    "OffsetCommit",
    "Outcome",
    "PartitionCommit",
    "SyncReply",
    "SyncRequest",
]
