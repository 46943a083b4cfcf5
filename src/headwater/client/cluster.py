"""A cluster as its clients see it: who leads what, who coordinates whom, and requests that reach them.

Blocking and confined to one thread. A broker that goes away is waited for: a request is sent again, on a
new connection, until the deadline; so is one that is answered with an error that Kafka calls retriable.
Whether a request that was perhaps already carried out may be sent again is its caller's to know
(`resend=False`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from headwater.client.connection import Connection
from headwater.client.errors import BrokerError, ClientError, UnknownTopic, Unreachable
from headwater.core.errors import ErrorCode
from headwater.core.urls import KafkaUrl
from headwater.wire.kafka.versions import Api

__all__ = ["EARLIEST", "LATEST", "Cluster", "Coordinator", "TopicInfo", "check"]

T = TypeVar("T")

LATEST = -1
EARLIEST = -2
DEADLINE_SECONDS = 30.0
_METADATA_VERSION = 11
_LIST_OFFSETS_VERSION = 6
_MAX_TIMESTAMP = -3
_MAX_TIMESTAMP_VERSION = 7
_CREATE_TOPICS_VERSION = 5
_FIND_COORDINATOR_VERSION = 3
_OFFSET_COMMIT_VERSION = 8
_OFFSET_FETCH_VERSION = 7
_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 1.0
_CREATE_MS = 15_000


class Coordinator(NamedTuple):
    """The broker that keeps a group's or a transactional id's state."""

    key: str
    kind: int

    @classmethod
    def of_group(cls, group: str) -> Coordinator:
        """Return the coordinator of a consumer group."""
        return cls(group, 0)

    @classmethod
    def of_transactions(cls, transactional_id: str) -> Coordinator:
        """Return the coordinator of a transactional producer."""
        return cls(transactional_id, 1)


@dataclass(frozen=True)
class TopicInfo:
    """A topic's identity and the leader of each of its partitions."""

    name: str
    topic_id: UUID | None
    leaders: dict[int, int] = field(default_factory=dict)


class Cluster:
    """The brokers behind one address.

    >>> cluster = Cluster(KafkaUrl.parse("kafka://127.0.0.1:9092"), "docs")   # doctest: +SKIP
    >>> cluster.offsets("orders", dict.fromkeys(cluster.partitions("orders"), LATEST))   # doctest: +SKIP
    {0: 17, 1: 20}
    """

    def __init__(
        self, url: KafkaUrl, client_id: str = "headwater", *, deadline_seconds: float = DEADLINE_SECONDS
    ) -> None:
        self.url = url
        self.client_id = client_id
        self.deadline_seconds = deadline_seconds
        self._addresses: dict[int, tuple[str, int]] = {}
        self._connections: dict[int | None, Connection] = {}
        self._topics: dict[str, TopicInfo] = {}
        self._coordinators: dict[Coordinator, int] = {}

    def close(self) -> None:
        """Hang up on every broker."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # Requests

    def request(
        self,
        api_key: int,
        version: int,
        body: Mapping[str, Any],
        *,
        node: int | Coordinator | None = None,
        resend: bool = True,
    ) -> Any:
        """Send one request, to any broker unless said otherwise, and return its response as kio's entity.

        Error codes inside the response are the caller's to look at; a lost connection is made anew and,
        with `resend`, the request sent again.
        """

        def attempt() -> Any:
            place = self._coordinator(node) if isinstance(node, Coordinator) else node
            with_connection = self.connection(place)
            try:
                return with_connection.call(api_key, version, body)
            except ClientError:
                self.drop(place)
                raise

        return self.retrying(attempt) if resend else attempt()

    def retrying(self, attempt: Callable[[], T]) -> T:
        """Return what `attempt` does, once it raises no `Unreachable` and no retriable `BrokerError`."""
        deadline = time.monotonic() + self.deadline_seconds
        pause = _FIRST_PAUSE
        while True:
            try:
                return attempt()
            except (Unreachable, BrokerError) as error:
                if isinstance(error, BrokerError) and not error.retriable:
                    raise
                if time.monotonic() + pause > deadline:
                    raise
            self.forget()
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def connection(self, node: int | None = None) -> Connection:
        """Return the connection to a broker by its id, or to any."""
        found = self._connections.get(node)
        if found is None:
            found = self._connections[node] = self._connect(node)
        return found

    def drop(self, node: int | None = None) -> None:
        """Hang up on a broker; the next request connects again."""
        connection = self._connections.pop(node, None)
        if connection is not None:
            connection.close()

    def forget(self) -> None:
        """Look leaders and coordinators up again when they are next needed."""
        self._topics.clear()
        self._coordinators.clear()

    def _connect(self, node: int | None) -> Connection:
        if node is not None:
            if node not in self._addresses:
                self._refresh([])
            if node not in self._addresses:
                raise Unreachable(f"{self.url} knows no broker {node}")
            return Connection(*self._addresses[node], self.url, self.client_id)
        failed: Unreachable | None = None
        for host, port in self.url.hosts:
            try:
                return Connection(host, port, self.url, self.client_id)
            except Unreachable as error:
                failed = error
        raise failed or Unreachable(f"{self.url} names no broker")

    def _coordinator(self, wanted: Coordinator) -> int:
        if wanted not in self._coordinators:
            connection = self.connection()
            try:
                answer = connection.call(
                    Api.FIND_COORDINATOR,
                    _FIND_COORDINATOR_VERSION,
                    {"key": wanted.key, "key_type": wanted.kind},
                )
            except ClientError:
                self.drop()
                raise
            check(answer.error_code, f"the coordinator of {wanted.key}", answer.error_message)
            self._addresses[answer.node_id] = (answer.host, answer.port)
            self._coordinators[wanted] = answer.node_id
        return self._coordinators[wanted]

    # Topics

    def topic(self, name: str, *, fresh: bool = False) -> TopicInfo:
        """Return a topic's id and leaders; raise `UnknownTopic` where there is none."""
        if fresh or name not in self._topics:
            self._topics.pop(name, None)
            self.retrying(lambda: self._refresh([name]))
        return self._topics[name]

    def partitions(self, topic: str, *, fresh: bool = False) -> list[int]:
        """Return the numbers of a topic's partitions."""
        return sorted(self.topic(topic, fresh=fresh).leaders)

    def leader(self, topic: str, partition: int) -> int:
        """Return the id of the broker that leads a partition."""
        leaders = self.topic(topic).leaders
        if partition not in leaders:
            raise UnknownTopic(f"{topic}-{partition}")
        return leaders[partition]

    def _refresh(self, names: list[str]) -> None:
        body = {
            "topics": [{"topic_id": None, "name": name} for name in names],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        }
        connection = self.connection()
        try:
            answer = connection.call(Api.METADATA, _METADATA_VERSION, body)
        except ClientError:
            self.drop()
            raise
        self._addresses.update({broker.node_id: (broker.host, broker.port) for broker in answer.brokers})
        for topic in answer.topics:
            if topic.error_code == ErrorCode.unknown_topic_or_partition:
                raise UnknownTopic(f"topic {topic.name}")
            check(topic.error_code, f"topic {topic.name}")
            for partition in topic.partitions:
                if partition.leader_id < 0:
                    check(ErrorCode.leader_not_available, f"{topic.name}-{partition.partition_index}")
            leaders = {partition.partition_index: partition.leader_id for partition in topic.partitions}
            self._topics[topic.name] = TopicInfo(topic.name, topic.topic_id, leaders)

    def ensure_topic(
        self, name: str, partitions: int | None = None, configs: Mapping[str, str] | None = None
    ) -> bool:
        """Create a topic unless it is there; return whether it was created.

        Without `partitions`, the broker's `num.partitions` decides.
        """
        try:
            self.topic(name)
            return False
        except UnknownTopic:
            pass
        topic = {
            "name": name,
            "num_partitions": partitions or -1,
            "replication_factor": -1,
            "assignments": [],
            "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
        }
        answer = self.request(
            Api.CREATE_TOPICS, _CREATE_TOPICS_VERSION, {"topics": [topic], "timeout": _CREATE_MS}
        )
        [created] = answer.topics
        if created.error_code != ErrorCode.topic_already_exists:
            check(created.error_code, f"topic {name}", created.error_message)
        self.retrying(lambda: self._await_topic(name))
        return bool(created.error_code == ErrorCode.none)

    def _await_topic(self, name: str) -> None:
        try:
            self._refresh([name])
        except UnknownTopic:  # created, but this broker has not heard of it yet
            raise BrokerError(ErrorCode.leader_not_available, f"topic {name}") from None

    def offsets(self, topic: str, at: Mapping[int, int], *, read_committed: bool = True) -> dict[int, int]:
        """Return each partition's offset at `LATEST`, `EARLIEST` or a time in ms since 1970.

        A time after the last record gives the end. With `read_committed` the end is that of what has been
        decided: an open transaction holds it back.
        """

        def attempt() -> dict[int, int]:
            by_node: dict[int, list[int]] = {}
            for partition in at:
                by_node.setdefault(self.leader(topic, partition), []).append(partition)
            found: dict[int, int] = {}
            for node, partitions in by_node.items():
                found |= self._list_offsets(topic, {p: at[p] for p in partitions}, node, read_committed)
            return found

        found = self.retrying(attempt)
        if after := [partition for partition, offset in found.items() if offset < 0]:
            found |= self.offsets(topic, dict.fromkeys(after, LATEST), read_committed=read_committed)
        return found

    def newest(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """Return the highest timestamp of each partition's records, in ms since 1970; -1 where none has one."""

        def attempt() -> dict[int, int]:
            by_node: dict[int, list[int]] = {}
            for partition in partitions:
                by_node.setdefault(self.leader(topic, partition), []).append(partition)
            return {
                place.partition_index: place.timestamp
                for node, asked in by_node.items()
                for place in self._places(
                    topic, dict.fromkeys(asked, _MAX_TIMESTAMP), node, True, _MAX_TIMESTAMP_VERSION
                )
            }

        return self.retrying(attempt)

    def _list_offsets(
        self, topic: str, at: Mapping[int, int], node: int, read_committed: bool
    ) -> dict[int, int]:
        places = self._places(topic, at, node, read_committed, _LIST_OFFSETS_VERSION)
        return {place.partition_index: place.offset for place in places}

    def _places(
        self, topic: str, at: Mapping[int, int], node: int, read_committed: bool, version: int
    ) -> list[Any]:
        asked = [{"partition_index": partition, "timestamp": when} for partition, when in at.items()]
        body = {
            "replica_id": -1,
            "isolation_level": int(read_committed),
            "topics": [{"name": topic, "partitions": asked}],
        }
        answer = self.request(Api.LIST_OFFSETS, version, body, node=node, resend=False)
        found = [partition for named in answer.topics for partition in named.partitions]
        for partition in found:
            check(partition.error_code, f"the offsets of {topic}-{partition.partition_index}")
        return found

    # Groups

    def commit_group(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Commit a group's offsets from outside of it, as tools do: for its lag to be seen."""
        partitions = [
            {"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}
            for partition, offset in offsets.items()
        ]
        body = {
            "group_id": group,
            "member_id": "",
            "topics": [{"name": topic, "partitions": partitions}],
        }

        def attempt() -> None:
            answer = self.request(
                Api.OFFSET_COMMIT,
                _OFFSET_COMMIT_VERSION,
                body,
                node=Coordinator.of_group(group),
                resend=False,
            )
            for named in answer.topics:
                for partition in named.partitions:
                    check(partition.error_code, f"the offsets of group {group}")

        self.retrying(attempt)

    def group_offsets(self, group: str, topic: str, partitions: list[int]) -> dict[int, int]:
        """Return the offsets that a group has committed, without those it has none for."""
        body = {
            "group_id": group,
            "topics": [{"name": topic, "partition_indexes": partitions}],
            "require_stable": True,
        }

        def attempt() -> dict[int, int]:
            answer = self.request(
                Api.OFFSET_FETCH,
                _OFFSET_FETCH_VERSION,
                body,
                node=Coordinator.of_group(group),
                resend=False,
            )
            check(answer.error_code, f"the offsets of group {group}")
            found = {}
            for named in answer.topics:
                for partition in named.partitions:
                    check(partition.error_code, f"the offsets of group {group}")
                    if partition.committed_offset >= 0:
                        found[partition.partition_index] = partition.committed_offset
            return found

        return self.retrying(attempt)


def check(code: int, what: str, message: str | None = None) -> None:
    """Raise a `BrokerError` for any error code but 0."""
    if code:
        raise BrokerError(code, what, message)
