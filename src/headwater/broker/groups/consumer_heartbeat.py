"""A ConsumerGroupHeartbeat: what it says, whether it may, and how it is answered."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headwater.broker.groups.consumer_group import LEFT_EPOCH, STATIC_LEFT_EPOCH, ConsumerMember
from headwater.broker.groups.records import Assignment, Subscription
from headwater.broker.groups.regex import InvalidPattern, compile_pattern
from headwater.core.errors import ApiError, ErrorCode


@dataclass(frozen=True)
class ConsumerHeartbeat:
    """A ConsumerGroupHeartbeat; what is None has not changed since the last."""

    group_id: str
    member_id: str
    member_epoch: int
    client_id: str = ""
    client_host: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: frozenset[str] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Assignment | None = None
    member_id_required: bool = True
    """Whether members choose their ids themselves (version 1 on)."""

    @property
    def is_full(self) -> bool:
        """Whether the member told everything, because it lost track of what the broker knows."""
        return self.member_epoch == 0 or (
            self.rebalance_timeout_ms != -1
            and (self.topic_names is not None or self.topic_regex is not None)
            and self.owned is not None
        )


@dataclass(frozen=True)
class ConsumerReply:
    """The answer to a heartbeat; `assignment` is None when it has not changed."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None


def validate(request: ConsumerHeartbeat, assignors: tuple[str, ...]) -> None:
    """Raise what Kafka answers to a heartbeat that contradicts itself."""
    epoch = request.member_epoch
    if (request.member_id_required or epoch != 0) and not request.member_id:
        raise ApiError(ErrorCode.invalid_request, "MemberId can't be empty.")
    for name, text in (
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if text == "":
            raise ApiError(ErrorCode.invalid_request, f"{name} can't be empty.")
    if epoch == 0:
        if request.rebalance_timeout_ms == -1:
            raise ApiError(ErrorCode.invalid_request, "RebalanceTimeoutMs must be provided in first request.")
        if request.owned is None or request.owned:
            raise ApiError(ErrorCode.invalid_request, "TopicPartitions must be empty when (re-)joining.")
        if request.topic_names is None and request.topic_regex is None:
            raise ApiError(
                ErrorCode.invalid_request,
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
            )
    elif epoch == STATIC_LEFT_EPOCH:
        if request.instance_id is None:
            raise ApiError(ErrorCode.invalid_request, "InstanceId can't be null.")
    elif epoch < LEFT_EPOCH:
        raise ApiError(ErrorCode.invalid_request, "MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise ApiError(
            ErrorCode.unsupported_assignor,
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )
    if request.topic_regex:
        try:
            compile_pattern(request.topic_regex)
        except InvalidPattern as error:
            raise ApiError(
                ErrorCode.invalid_regular_expression,
                f"SubscribedTopicRegex `{request.topic_regex[:100]}` "
                f"is not a valid regular expression: {error}.",
            ) from None


def check_epoch(member: ConsumerMember, request: ConsumerHeartbeat) -> None:
    """Raise for a member at another epoch, unless it is one behind because an answer was lost."""
    if request.member_epoch == member.epoch:
        return
    greater = request.member_epoch > member.epoch
    if not greater and request.member_epoch == member.previous_epoch and request.owned is not None:
        within = all(
            partitions <= member.assigned.get(topic, frozenset())
            for topic, partitions in request.owned.items()
        )
        if within:
            return
    raise ApiError(
        ErrorCode.fenced_member_epoch,
        f"The consumer group member has a {'greater' if greater else 'smaller'} member epoch "
        f"({request.member_epoch}) than the one known by the group coordinator ({member.epoch}). "
        "The member must abandon all its partitions and rejoin.",
    )


def updated(subscription: Subscription, request: ConsumerHeartbeat) -> Subscription:
    """Return the subscription after what the heartbeat says about it: mostly nothing."""
    told = {
        "client_id": request.client_id,
        "client_host": request.client_host,
        "instance_id": request.instance_id,
        "rack_id": request.rack_id,
        "topic_names": request.topic_names,
        "server_assignor": request.server_assignor,
    }
    changes: dict[str, object] = {
        name: value for name, value in told.items() if value not in (None, getattr(subscription, name))
    }
    if request.topic_regex is not None:
        changes["topic_regex"] = request.topic_regex or None
    if request.rebalance_timeout_ms != -1:
        changes["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    if subscription.classic is not None:
        changes["classic"] = None
    return replace(subscription, **changes) if changes else subscription  # type: ignore[arg-type]
