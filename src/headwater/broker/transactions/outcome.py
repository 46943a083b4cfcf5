"""What the transaction coordinator is asked, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from headwater.broker.state import StateRecord
from headwater.broker.transactions.records import NO_EPOCH, NO_ID, TopicPartition
from headwater.core.errors import ErrorCode

R = TypeVar("R")


class ProducerIdentity(NamedTuple):
    """A producer's id and epoch."""

    producer_id: int
    epoch: int


NOBODY = ProducerIdentity(NO_ID, NO_EPOCH)


class Reply(NamedTuple):
    """The answer to an InitProducerId or EndTxn: who the producer is from now on, or why it is nobody."""

    producer: ProducerIdentity
    error: ErrorCode = ErrorCode.none


@dataclass(frozen=True)
class InitRequest:
    """An InitProducerId with a transactional id; `expected` is who the producer was before, if anybody."""

    transactional_id: str
    timeout_ms: int
    expected: ProducerIdentity = NOBODY


@dataclass(frozen=True)
class EndRequest:
    """An EndTxn; `bumps_epoch` from version 5 on, where every end raises the epoch (KIP-890)."""

    transactional_id: str
    producer: ProducerIdentity
    commit: bool
    bumps_epoch: bool = True


@dataclass(frozen=True)
class Ending:
    """A transaction whose outcome is decided: the markers that have to be written before it is complete."""

    transactional_id: str
    producer: ProducerIdentity
    commit: bool
    partitions: tuple[TopicPartition, ...]


@dataclass
class Outcome(Generic[R]):
    """A handler's result.

    The records go to the log and through `replay` at once; the reply goes, and the markers of the endings are
    written, when the records are durable.
    """

    reply: R
    records: list[StateRecord] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
