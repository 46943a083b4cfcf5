"""An event store: streams of events in one topic, appended to with an expected version.

>>> with EventStore("kafka://127.0.0.1:9092", "accounts") as store:   # doctest: +SKIP
...     store.append("ann", NewEvent("Deposited", {"amount": 10}), expected=NO_STREAM)
...     [event.type for event in store.read("ann")]
['Deposited']

A stream's events are in the partition of its name, by the rule of Kafka's clients. Appends go through the one
writer of that partition (`writer`). Reads come from the index: of what this process writes, it has all that was
acknowledged; of what other processes write, it reads the end of the log first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from headwater.client import Cluster
from headwater.core.clock import Clock, SystemClock
from headwater.core.urls import KafkaUrl
from headwater.events.aggregates import Aggregates
from headwater.events.errors import EventError
from headwater.events.event import Event, check_name, to_json
from headwater.events.expected import ANY, Expected
from headwater.events.fold import Fold
from headwater.events.follow import Progress, catch_up, check_positions, ends
from headwater.events.index import Index
from headwater.events.keys import Keys
from headwater.events.plan import Appended, Request, prepare
from headwater.events.topic import open_topic
from headwater.events.upcasting import Upcasters
from headwater.events.writer import PartitionWriter
from headwater.record.partitioner import partition_of

__all__ = ["DIRECTORY", "EventStore", "index_path"]

DIRECTORY = Path("headwater-data/events")
"""Where indexes are kept unless said otherwise."""


def index_path(directory: Path | str, name: str) -> Path:
    """Return the file of a store's index."""
    return Path(directory) / f"{name}.index.db"


class EventStore:
    """The streams of one topic. Thread-safe; close it, or use it as a context manager.

    The topic is made where it is missing, with so many `partitions` and without retention. `directory` holds
    the index. `upcasters` bring old events up to date in aggregates and projections, not in `read`. A broker that
    is away is waited for up to `deadline_seconds`.
    """

    def __init__(
        self,
        broker: str | KafkaUrl,
        name: str,
        *,
        directory: Path | str = DIRECTORY,
        partitions: int | None = None,
        upcasters: Upcasters | None = None,
        clock: Clock | None = None,
        deadline_seconds: float = 30.0,
        progress: Progress | None = None,
    ) -> None:
        self.name = check_name(name, "a store's name")
        self.url = KafkaUrl.parse(broker) if isinstance(broker, str) else broker
        self.upcasters = upcasters
        self._deadline_seconds = deadline_seconds
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._reader_lock = threading.Lock()
        self._writers: dict[int, PartitionWriter] = {}
        self._opened_to: dict[int, int] = {}
        self._closed = False
        self._reader = self._connect()
        try:
            info = open_topic(self._reader, name, partitions)
            self.partitions = len(info.leaders)
            self._index = Index(index_path(directory, name), name, str(info.topic_id), self.partitions)
            self._keys = Keys(name, self._index, self._clock)
        except BaseException:
            self._reader.close()
            raise
        try:
            check_positions(self._reader, self._index, name, self.partitions)
            self.refresh(progress)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Finish the appends that were handed in, and close everything."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        for writer in self._writers.values():
            writer.close()
        with self._reader_lock:
            self._reader.close()
            self._index.close()

    # Appending

    def append(
        self,
        stream: str,
        events: object,
        *,
        expected: Expected = ANY,
        command_id: str | None = None,
        causation_id: str | None = None,
        correlation_id: str | None = None,
        caused_by: Event | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Appended:
        """Append events to a stream, all or none, and return once they are durable.

        Raises `WrongVersion` where the stream is not as `expected`. A `command_id` that the stream has seen
        gives the result of its first time. `caused_by` sets causation and correlation from another event.
        """
        return self.submit(
            stream,
            events,
            expected=expected,
            command_id=command_id,
            causation_id=causation_id,
            correlation_id=correlation_id,
            caused_by=caused_by,
            metadata=metadata,
        ).result()

    def submit(self, stream: str, events: object, **options: Any) -> Future[Appended]:
        """Do as `append` does, with its options, and return at once: the future holds the result."""
        return self._submit(self._request(stream, events=prepare(events, self.upcasters), **options))

    def execute(
        self, fold: Fold, stream: str, decide: Callable[[Any], object], **options: Any
    ) -> Future[Appended]:
        """Let a function decide over a stream's state, with the options of `append`; `aggregates` is for this."""
        return self._submit(
            self._request(stream, fold=fold, decide=decide, upcasters=self.upcasters, **options)
        )

    def aggregates(
        self,
        by: type[Any] | Callable[[Any, Event], Any],
        *,
        initial: Any = None,
        snapshot_every: int | None = None,
        **options: Any,
    ) -> Aggregates:
        """Return the streams of this store as aggregates, folded by a class or by a function."""
        fold = Fold(by, initial=initial, upcasters=self.upcasters, snapshot_every=snapshot_every, **options)
        return Aggregates(self, fold)

    def claim(self) -> None:
        """Take the partitions back that another process has taken from this one."""
        for writer in list(self._writers.values()):
            writer.reclaim()

    def erase(self, subject: str) -> int:
        """Erase the personal data about somebody for good, and return how many events had such data.

        The events stay, with None in place of what was personal; so do projections and other copies that were made
        of them before. Another process notices within a second.
        """
        check_name(subject, "a subject")
        self.refresh()
        with self._reader_lock:
            self._check_open()
            return self._keys.erase(self._reader, subject)

    # Reading

    def read(
        self, stream: str, *, after: int = 0, until: int | None = None, at: datetime | None = None
    ) -> Iterator[Event]:
        """Yield a stream's events as they were stored: behind a version, up to a version or a time."""
        self.freshen(stream)
        if at is not None:
            last = self.version(stream, at=at)
            until = last if until is None else min(until, last)
        return self._index.events(stream, after, until)

    def version(self, stream: str, *, at: datetime | None = None) -> int:
        """Return a stream's version, now or at a time; 0 where it has no events."""
        self.freshen(stream)
        if at is not None:
            return self._index.version_at(stream, round(at.timestamp() * 1000))
        return self._index.head(stream).version

    def streams(self, after: str = "", limit: int = 500) -> list[tuple[str, int]]:
        """Return streams and their versions in the order of their names, behind one of them."""
        self.refresh()
        return self._index.streams(after, limit)

    def correlated(self, correlation_id: str) -> list[Event]:
        """Return the events of one conversation, over all streams, in the order of their times."""
        self.refresh()
        return self._index.correlated(correlation_id)

    @property
    def index(self) -> Index:
        """What is known of the topic; as fresh as the last `refresh`."""
        return self._index

    @property
    def skipped(self) -> int:
        """How many records of the topic are no events, and were left out."""
        return self._index.skipped()

    def freshen(self, stream: str) -> None:
        """Make sure that the index has what any process has appended to a stream until now."""
        self._freshen(self._partition(stream))

    def refresh(self, progress: Progress | None = None) -> None:
        """Make sure that the index has what any process has appended until now."""
        if progress is None:
            for partition in range(self.partitions):
                self._freshen(partition)
            return
        with self._reader_lock:
            ahead = ends(self._reader, self.name, range(self.partitions))
        left = {partition: max(end - self._index.position(partition), 0) for partition, end in ahead.items()}
        total, before = sum(left.values()), 0
        for partition, share in left.items():
            self._freshen(partition, lambda done, _, at=before: progress(at + done, total))  # type: ignore[misc]
            before += share
        progress(total, total)

    def _freshen(self, partition: int, progress: Progress | None = None) -> None:
        writer = self._writers.get(partition)
        is_current = writer is not None and writer.settled()
        if writer is not None and is_current and not writer.has_personal:
            return
        with self._reader_lock:
            self._check_open()
            if not is_current:
                catch_up(self._reader, self._index, self.name, partition, progress=progress)
            if self._index.has_personal():
                # What came since, whoever took it in, may be sealed with keys that are not here yet.
                position = self._index.position(partition)
                self._keys.follow(self._reader, at_once=position > self._opened_to.get(partition, 0))
                self._opened_to[partition] = position

    def _check_open(self) -> None:
        if self._closed:
            raise EventError(f"the store {self.name} is closed")

    # Requests

    def _request(
        self,
        stream: str,
        *,
        expected: Expected = ANY,
        command_id: str | None = None,
        causation_id: str | None = None,
        correlation_id: str | None = None,
        caused_by: Event | None = None,
        metadata: Mapping[str, Any] | None = None,
        **what: Any,
    ) -> Request:
        if caused_by is not None:
            causation_id = causation_id or caused_by.id
            correlation_id = correlation_id or caused_by.correlation_id or caused_by.id
        ids = {"command_id": command_id, "causation_id": causation_id, "correlation_id": correlation_id}
        for name, value in ids.items():
            if value is not None:
                check_name(value, f"a {name}")
        said = dict(metadata or {})
        return Request(
            check_name(stream, "a stream's name"),
            expected=expected,
            command_id=command_id,
            # A command without a cause of its own is the cause of its events, and begins a conversation.
            causation_id=causation_id or command_id,
            correlation_id=correlation_id or command_id,
            metadata=said,
            metadata_text=to_json(said, "the metadata") if said else "{}",
            **what,
        )

    def _submit(self, request: Request) -> Future[Appended]:
        with self._lock:
            self._check_open()
            partition = self._partition(request.stream)
            writer = self._writers.get(partition)
            if writer is None:
                writer = PartitionWriter(
                    self._connect, self.name, partition, self._index, self._keys, self._clock
                )
                self._writers[partition] = writer
        return writer.submit(request)

    def _partition(self, stream: str) -> int:
        return partition_of(stream.encode(), self.partitions)

    def _connect(self) -> Cluster:
        return Cluster(self.url, f"headwater-events-{self.name}", deadline_seconds=self._deadline_seconds)
