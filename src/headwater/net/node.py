"""The node: the state machines, the logs behind them, and the clock, in one place for the handlers.

Records that a state machine's handler returns are appended to the machine's log and replayed at once, so
that the next request sees them; the reply goes when they are on disk. Should they not get there, the
log fails, and with it everything that depends on it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from headwater.broker.access.users import Users
from headwater.broker.broker_settings import BROKER_SETTINGS
from headwater.broker.fetch_sessions import FetchSessions
from headwater.broker.group_configs import GroupConfigs
from headwater.broker.groups import GroupCoordinator
from headwater.broker.groups.settings import GROUP_SETTINGS
from headwater.broker.producer_ids import ProducerIds
from headwater.broker.rates import Window
from headwater.broker.share.coordinator import ShareCoordinator
from headwater.broker.state import StateRecord
from headwater.broker.topic_names import INTERNAL, METADATA_TOPIC
from headwater.broker.topics import (
    BrokerConfigChanged,
    ConfigChanged,
    Effect,
    NewTopic,
    PartitionsAdded,
    TopicCreated,
    TopicDeleted,
    Topics,
)
from headwater.broker.transactions import TRANSACTION_SETTINGS, TransactionCoordinator
from headwater.core.clock import Clock
from headwater.core.settings import Settings, Value
from headwater.log.cold import ColdReader
from headwater.log.commit import GroupCommit
from headwater.log.config import LogConfig
from headwater.log.directory import LogDirectory
from headwater.net.counters import Counters
from headwater.net.disk_watch import DiskWatch
from headwater.net.kafka.group_service import GroupService
from headwater.net.kafka.share_service import ShareService
from headwater.net.kafka.throttle import Throttle
from headwater.net.kafka.transaction_service import TransactionService
from headwater.net.log_limit import LogLimit
from headwater.net.state_log import Replay, StateLog, next_sync
from headwater.net.upkeep import Upkeep

if TYPE_CHECKING:
    from headwater.net.amqp.service import QueueService

logger = logging.getLogger(__name__)

GROUPS_TOPIC = "__consumer_offsets"
SHARE_TOPIC = "__share_group_state"
TRANSACTIONS_TOPIC = "__transaction_state"
SETTINGS = Settings(*BROKER_SETTINGS, *GROUP_SETTINGS, *TRANSACTION_SETTINGS)
_UPKEEP_SECONDS = 60.0


class Node:
    """One broker."""

    def __init__(
        self, data: Path, clock: Clock, config: Mapping[str, str], *, synced: bool, queues: bool = False
    ) -> None:
        self.clock = clock
        self.settings: dict[str, Value] = SETTINGS.resolve(config)
        self.node_id = self.number("node.id")
        self.host, self.port = "127.0.0.1", 9092
        self.loop = asyncio.get_running_loop()
        self.counters = Counters()
        self.log_limit = LogLimit(clock)
        self.recovery_seconds = 0.0
        archive = cast(str | None, self.settings["headwater.archive.dir"])
        self.logs = LogDirectory(
            data,
            synced=synced,
            journal_bytes=self.number("headwater.journal.bytes"),
            archive=None if archive is None else Path(archive).absolute(),
        )
        self.disk = DiskWatch(data, self.number("headwater.disk.reserve.bytes"))
        self.cold = ColdReader(self.logs.files, self.loop.call_soon_threadsafe)
        self.commit = GroupCommit(
            self.loop.call_soon, self.loop.call_soon_threadsafe, journal=self.logs.journal
        )
        self.topics = Topics(self.node_id, config)
        self.producer_ids = ProducerIds()
        self.users = Users(secrets.token_bytes(32))
        self.throttle = Throttle(self._window("quota"), self._window("controller.quota"))
        self.group_configs = GroupConfigs(self.settings)
        self.groups = GroupCoordinator(self.settings, self.topics, self.group_configs)
        self.group_service = GroupService(self)
        self.shares = ShareCoordinator(self.settings, self.group_configs)
        self.share_service = ShareService(self)
        self.transactions = TransactionCoordinator(self.settings)
        self.transaction_service = TransactionService(self)
        slots = self.number("max.incremental.fetch.session.cache.slots")
        self.fetch_sessions = FetchSessions(slots, lambda: random.randrange(1, 2**31))
        self.internal = INTERNAL
        self._names: dict[bytes, str] = {}
        self._metadata = StateLog(
            self.logs.open_state(METADATA_TOPIC, clock.wall_ms()), self._replay_metadata, clock
        )
        self._group_log: StateLog | None = None
        self._share_log: StateLog | None = None
        self._transaction_log: StateLog | None = None
        self._upkeep: asyncio.TimerHandle | None = None
        self.upkeep = Upkeep(self)
        self._queue_service = self._make_queue_service() if queues else None
        self._opened = False

    def _make_queue_service(self) -> QueueService:
        # A broker without queues does not load what they need.
        from headwater.net.amqp.service import QueueService

        return QueueService(self)

    @property
    def queue_service(self) -> QueueService:
        """The queues, of a broker that serves any."""
        assert self._queue_service is not None, "the broker serves queues"
        return self._queue_service

    @property
    def serves_queues(self) -> bool:
        """Whether the broker serves queues."""
        return self._queue_service is not None

    @property
    def cluster_id(self) -> str:
        """The id that the data directory was given when it was made."""
        return self.logs.cluster_id

    @property
    def fetch_max_bytes(self) -> int:
        """The most that one fetch response holds, a single larger batch aside."""
        return self.number("fetch.max.bytes")

    @property
    def failed(self) -> str | None:
        """Why nothing can be acknowledged any more, or None while all is well."""
        transactions = None if self._transaction_log is None else self._transaction_log.log.error
        return self._metadata.log.error or transactions

    def number(self, name: str) -> int:
        """Return a setting that is a whole number."""
        return cast(int, self.settings[name])

    def _window(self, kind: str) -> Window:
        return Window(self.number(f"{kind}.window.num"), 1000 * self.number(f"{kind}.window.size.seconds"))

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with this id."""
        return self._names.get(topic_id)

    # -- life ------------------------------------------------------------------------------------

    def open(self) -> None:
        """Replay the state machines' logs and recover the partitions."""
        self._metadata.load()
        for name in (GROUPS_TOPIC, SHARE_TOPIC, TRANSACTIONS_TOPIC):
            if name not in self.topics.by_name:
                new = NewTopic(name, 1, 1, configs={"cleanup.policy": "compact"})
                self._metadata.append(self.topics.create(new, internal=True)[1])
                self._metadata.log.sync()
        now_ms = self.clock.wall_ms()
        for topic in self.topics.by_name.values():
            config = LogConfig.of(topic.settings)
            self.logs.open_topic(topic.name, topic.id, range(topic.partitions), config, now_ms)
            self._names[topic.id.bytes] = topic.name
            self.throttle.limit_topic(topic.name, topic.settings)
        self.logs.settle(set(self.topics.by_id))
        self._opened = True
        self._group_log = self._state_log(GROUPS_TOPIC, self.groups.replay)
        self._share_log = self._state_log(SHARE_TOPIC, self.shares.replay)
        self._transaction_log = self._state_log(TRANSACTIONS_TOPIC, self.transactions.replay)
        if self._queue_service is not None:
            self._queue_service.open()

    def _state_log(self, topic: str, replay: Replay) -> StateLog:
        log = self.logs.get(topic, 0)
        assert log is not None, "the topic was just opened"
        state_log = StateLog(log, replay, self.clock)
        state_log.load()
        return state_log

    def start(self) -> None:
        """Begin what goes on by itself: group timers, and upkeep."""
        self.disk.start(self.loop)
        self.group_service.start()
        self.share_service.start()
        self.transaction_service.start()
        self._sweep(self.logs.take_doomed())
        self._upkeep = self.loop.call_later(_UPKEEP_SECONDS, self._tidy)
        self.upkeep.start()

    async def close(self) -> None:
        """Sync and close everything."""
        self.disk.stop()
        self.group_service.stop()
        self.share_service.stop()
        self.transaction_service.stop()
        if self._upkeep is not None:
            self._upkeep.cancel()
        await self.upkeep.stop()
        if self._opened and self._queue_service is not None:
            self._queue_service.close()
        if self._opened and self._group_log is not None:
            await next_sync(self.commit)
        self.commit.close()
        self.cold.close()
        self._metadata.log.close()
        self.logs.close()

    # -- state -----------------------------------------------------------------------------------

    async def commit_topics(self, records: Sequence[StateRecord]) -> None:
        """Append to the metadata log, take effect at once, and return when it is on disk."""
        if records:
            self._metadata.append(records)
        doomed = self.logs.take_doomed()
        await self._metadata.durable(self.commit)
        self._sweep(doomed)

    def append_topics(self, records: Sequence[StateRecord]) -> None:
        """Append to the metadata log and take effect at once; the next sync makes it durable."""
        self._metadata.append(records)
        self.commit.add(self._metadata.log)

    async def commit_groups(self, records: Sequence[StateRecord]) -> None:
        """Append to the consumer offsets, take effect at once, and return when it is on disk."""
        assert self._group_log is not None, "the node is open"
        await self._group_log.commit(records, self.commit)

    def append_shares(self, records: Sequence[StateRecord]) -> None:
        """Append to the state of share groups and take effect at once; the next sync makes it durable."""
        assert self._share_log is not None, "the node is open"
        self._share_log.append(records)
        self.commit.add(self._share_log.log)

    async def shares_durable(self) -> None:
        """Return when all that was appended to the state of share groups is on disk."""
        assert self._share_log is not None, "the node is open"
        await self._share_log.durable(self.commit)

    async def commit_transactions(self, records: Sequence[StateRecord]) -> None:
        """Append to the transactions' state, take effect at once, and return when it is on disk."""
        assert self._transaction_log is not None, "the node is open"
        await self._transaction_log.commit(records, self.commit)

    def append_transactions(self, records: Sequence[StateRecord]) -> None:
        """Append to the transactions' state and take effect at once; the next sync makes it durable."""
        assert self._transaction_log is not None, "the node is open"
        self._transaction_log.append(records)
        self.commit.add(self._transaction_log.log)

    def _replay_metadata(self, record: StateRecord) -> None:
        self.producer_ids.replay(record)
        self.users.replay(record)
        self.throttle.replay(record)
        self.group_configs.replay(record)
        for effect in self.topics.replay(record):
            if isinstance(effect, BrokerConfigChanged):
                self.settings.update(effect.settings)
            elif self._opened:
                self._take_effect(effect)

    def _take_effect(self, effect: Effect) -> None:
        match effect:
            case TopicCreated(topic):
                self._names[topic.id.bytes] = topic.name
                self.throttle.limit_topic(topic.name, topic.settings)
                self._open(topic.name, range(topic.partitions))
                self.groups.topics_changed()
            case PartitionsAdded(topic, first):
                self._open(topic.name, range(first, topic.partitions))
                self.groups.topics_changed()
            case ConfigChanged(topic):
                self.throttle.limit_topic(topic.name, topic.settings)
                self.logs.reconfigure(topic.name, topic.partitions, LogConfig.of(topic.settings))
                for log in self.logs.of_topic(topic.name, topic.partitions):
                    self.upkeep.archiving.reconfigured(log)
            case TopicDeleted(topic):
                del self._names[topic.id.bytes]
                self.throttle.limit_topic(topic.name, None)
                self.logs.delete_topic(topic.name, topic.id, topic.partitions)
                self.groups.topics_changed()
                self._forget_offsets(topic.name)
                self.share_service.apply(self.shares.forget_topics([topic.id]))
        if self._queue_service is not None and not isinstance(effect, ConfigChanged | BrokerConfigChanged):
            self._queue_service.bridge.topics_changed(effect.topic.name)

    def _open(self, name: str, partitions: range) -> None:
        topic = self.topics.by_name[name]
        self.logs.open_topic(name, topic.id, partitions, LogConfig.of(topic.settings), self.clock.wall_ms())

    def _forget_offsets(self, topic: str) -> None:
        outcome = self.groups.topics_deleted([topic])
        if outcome.records and self._group_log is not None:
            self._group_log.append(outcome.records)
            self.commit.add(self._group_log.log)

    # -- upkeep ----------------------------------------------------------------------------------

    def _tidy(self) -> None:
        self._upkeep = self.loop.call_later(_UPKEEP_SECONDS, self._tidy)
        before = self.clock.wall_ms() - self.number("producer.id.expiration.ms")
        for log in self.logs:
            if log.producers:
                log.producers.expire(before)

    def _sweep(self, doomed: list[Path]) -> None:
        if doomed:
            self.loop.run_in_executor(None, self.logs.sweep, doomed)
