"""What a handler of the group coordinator gives back, and what it is told about time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from headwater.broker.state import StateRecord
from headwater.core.errors import ErrorCode

R = TypeVar("R")

Ticket = int
"""Names a request that may be parked; the caller chooses it, and never the same one twice."""


class Moment(NamedTuple):
    """Now, by both clocks: timers go by the monotonic one, what is stored by the wall."""

    mono_ms: int
    wall_ms: int


@dataclass(frozen=True)
class JoinReply:
    """The answer to a JoinGroup."""

    member_id: str
    error: ErrorCode = ErrorCode.none
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    """Id, instance id and metadata of each member, for the leader alone."""


@dataclass(frozen=True)
class SyncReply:
    """The answer to a SyncGroup."""

    error: ErrorCode = ErrorCode.none
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass
class Outcome(Generic[R]):
    """A handler's result: its reply, and what has to happen besides.

    The records go to the log and through `replay` at once, before the coordinator is called again;
    the reply, and the replies to requests that were parked earlier, go when the records are durable.
    """

    reply: R | None = None
    """None when the request itself is parked: its reply comes with a later outcome."""
    records: list[StateRecord] = field(default_factory=list)
    replies: list[tuple[Ticket, JoinReply | SyncReply]] = field(default_factory=list)
