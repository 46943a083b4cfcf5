"""What members say about the records they have: ShareAcknowledge, and the part of ShareFetch that is the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from headwater.broker.share.partition import Ack, AckType
from headwater.broker.share.records import ShareKey
from headwater.broker.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, SessionKey, Slot
from headwater.core.errors import ApiError, ErrorCode
from headwater.net.kafka.api import Answer, Handler, Request

if TYPE_CHECKING:
    from headwater.net.node import Node

NO_ID = UUID(int=0)
Refused = dict[Slot, ApiError | None]


def slots_of(topics: Iterable[Any]) -> list[Slot]:
    """Return the partitions that a request names."""
    return [(topic.topic_id or NO_ID, part.partition_index) for topic in topics for part in topic.partitions]


def take_acks(node: Node, key: SessionKey, topics: Iterable[Any], *, renews: bool) -> tuple[bool, Refused]:
    """Take the acknowledgements in a request.

    Return whether there is something to wait for, and what is wrong, or None, for each partition that has any.
    """
    results: Refused = {}
    acks: dict[ShareKey, list[Ack]] = {}
    for topic in topics:
        topic_id = topic.topic_id or NO_ID
        for part in topic.partitions:
            if not part.acknowledgement_batches:
                continue
            slot = topic_id, part.partition_index
            place = ShareKey(key.group, *slot)
            try:
                words = _words(part.acknowledgement_batches, renews=renews)
                _check_place(node, place)
            except ApiError as error:
                results[slot] = error
                continue
            results[slot] = None
            acks[place] = words
    wrote, refused = node.share_service.acknowledge(key.member, acks) if acks else (False, {})
    results |= {(place.topic_id, place.partition): error for place, error in refused.items()}
    return wrote, results


def _check_place(node: Node, place: ShareKey) -> None:
    if place.topic_id not in node.topics.by_id:
        raise ApiError(ErrorCode.unknown_topic_id)
    if place not in node.shares.partitions:
        raise ApiError(ErrorCode.unknown_topic_or_partition)


def _words(batches: Sequence[Any], *, renews: bool) -> list[Ack]:
    """Return what a member says about one partition, or raise where it contradicts itself."""
    highest = AckType.RENEW if renews else AckType.REJECT
    words: list[Ack] = []
    end = -1
    for batch in batches:
        types = batch.acknowledge_types
        size = batch.last_offset - batch.first_offset + 1
        in_order = end <= batch.first_offset <= batch.last_offset
        if not in_order or not types or (len(types) > 1 and len(types) != size):
            raise ApiError(ErrorCode.invalid_request)
        if not all(0 <= kind <= highest for kind in types):
            raise ApiError(ErrorCode.invalid_request)
        words.append(Ack(batch.first_offset, batch.last_offset, tuple(map(AckType, types))))
        end = batch.last_offset
    return words


async def share_acknowledge(node: Node, request: Request, message: Any) -> Answer:
    """Answer ShareAcknowledge, when what was acknowledged is on disk."""
    key = SessionKey.of(message)
    epoch = message.share_session_epoch
    if epoch == INITIAL_EPOCH:
        raise ApiError(ErrorCode.invalid_share_session_epoch)
    if epoch == FINAL_EPOCH:
        node.shares.sessions.find(key)
    else:
        node.shares.sessions.resume(key, epoch)
    renews = getattr(message, "is_renew_ack", False)
    wrote, results = take_acks(node, key, message.topics, renews=renews)
    if epoch == FINAL_EPOCH:
        node.share_service.end_session(*key)
    node.share_service.arm()
    if wrote:
        await node.shares_durable()
    topics: dict[UUID, list[dict[str, Any]]] = {}
    for (topic_id, index), error in results.items():
        topics.setdefault(topic_id, []).append(
            {
                "partition_index": index,
                "error_code": ErrorCode.none if error is None else error.code,
                "error_message": None if error is None else error.message or None,
                "current_leader": {"leader_id": 0, "leader_epoch": 0},
            }
        )
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "acquisition_lock_timeout": node.shares.config(key.group).lock_ms,
        "responses": [{"topic_id": topic_id, "partitions": parts} for topic_id, parts in topics.items()],
        "node_endpoints": [],
    }


HANDLERS: dict[int, Handler] = {79: share_acknowledge}
