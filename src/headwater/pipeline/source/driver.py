"""The driver's side of a source: where the next batch ends, what time it is there, and what is committed.

It lives in a Python process of its own, one per source of a query, which Spark asks in turn for the latest
offset, the tasks up to it, and to commit it. What must survive is in the offset; the rest of its state
(reports of tasks, when partitions grew) may be lost, and time then only lags.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from headwater.client import EARLIEST, LATEST, Cluster, UnknownTopic
from headwater.client.cluster import TopicInfo
from headwater.core.clock import Clock, SystemClock
from headwater.core.errors import SettingError
from headwater.pipeline.boundaries import boundary
from headwater.pipeline.source.admission import admit
from headwater.pipeline.source.errors import RecordsLost, SourceError, TopicChanged
from headwater.pipeline.source.event_time import Activity, later, watermark
from headwater.pipeline.source.meeting import Meeting
from headwater.pipeline.source.offsets import SourceOffset
from headwater.pipeline.source.poll import Bounds, poll
from headwater.pipeline.source.reports import Report, ReportListener
from headwater.pipeline.source.spec import TopicSource
from headwater.pipeline.source.tasks import Task, plan

__all__ = ["SourceDriver", "starting_offsets"]

logger = logging.getLogger(__name__)

WAIT_MS = 500
REFRESH_MS = 5_000
"""How often new partitions, and topics to watch, are looked for."""
COMMIT_MS = 1_000
"""How often a group's offsets are committed at most: they are for people to look at."""


class SourceDriver:
    """One topic as one query reads it, on the driver."""

    def __init__(
        self,
        source: TopicSource,
        *,
        cluster: Cluster | None = None,
        clock: Clock | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self._source = source
        self._cluster = cluster or Cluster(source.url, source.group or "headwater-pipeline")
        self._clock = clock or SystemClock()
        self._listener = ReportListener(host)
        self._activity = Activity(source.idle_ms)
        meeting = source.meeting if source.event_time else None
        self._meeting = Meeting(meeting, source.topic, source.watch) if meeting else None
        self._starts: int | None = None
        self._highs: dict[int, int] = {}
        self._row_bytes: dict[int, float] = {}
        self._watched: dict[tuple[str, int], int] = {}
        self._refreshed_ms: int | None = None
        self._targets: dict[int, int] | None = None
        self._ends: dict[int, int] = {}
        self._committed: dict[int, int] = {}
        self._uncommitted: dict[int, int] | None = None
        self._committed_ms = -COMMIT_MS

    def initial(self) -> SourceOffset:
        """Return where a query that has no checkpoint begins."""
        info = self._topic()
        return SourceOffset(starting_offsets(self._cluster, self._source), topic_id=_id(info))

    def stop_at_now(self) -> None:
        """From here on behave as if no more records came."""
        topic = self._source.topic
        self._targets = self._cluster.offsets(topic, dict.fromkeys(self._cluster.partitions(topic), LATEST))
        if self._source.event_time is not None:
            self._activity.begin(self._targets, self._quiet_ms(), self._clock.monotonic_ms())

    def latest(self, start: SourceOffset, max_rows: int | None, max_bytes: int | None) -> SourceOffset:
        """Return the end of the next batch, or `start` where there is nothing to do.

        Waits a little where nothing has come; a record in any watched topic ends the wait.
        """
        if self._source.until_now and self._targets is None:
            self.stop_at_now()
        if self._starts is None:
            self._starts = start.starts + 1
        info = self._refresh()
        at = self._continued(start, info)
        self._fold(at)
        # Spark tells that a batch is done when it begins the next; that it asks for one says so at once.
        self._note_done(start)
        self._look(at, 0 if self._targets is not None or self._told(at).moved(start) else self._patience())
        ends = self._admitted_ends()
        offsets = admit(at.offsets, ends, max_rows=max_rows, max_bytes=max_bytes, row_bytes=self._row_bytes)
        end = replace(self._told(at), offsets=offsets, highs={**at.highs, **self._highs})
        moved = end.moved(start) or not end.continues(start)
        if self._meeting is not None:
            self._meeting.tell(
                end.watermark, idle=self._activity.idle(at.offsets, self._clock.monotonic_ms())
            )
        # Spark may end this process without a word once it has drained the topic.
        self._commit_group(at_once=not moved)
        return end if moved else start

    def tasks(self, start: SourceOffset, end: SourceOffset) -> list[Task]:
        """Return the tasks of a batch."""
        boundary("source.after_plan")
        return plan(start, end, self._listener.address)

    def ends(self) -> SourceOffset | None:
        """Return the ends of the partitions as last seen, for the lag to be shown."""
        return SourceOffset(self._ends) if self._ends else None

    def commit(self, end: SourceOffset) -> None:
        """Take note that a batch is done."""
        self._note_done(end)
        self._commit_group()

    def close(self) -> None:
        """Commit what is to commit and hang up."""
        try:
            self._commit_group(at_once=True)
        finally:
            self._listener.close()
            self._cluster.close()

    # The topic

    def _topic(self, *, fresh: bool = False) -> TopicInfo:
        try:
            return self._cluster.topic(self._source.topic, fresh=fresh)
        except UnknownTopic:
            raise TopicChanged(
                f"there is no topic named {self._source.topic}: it was deleted, or never created; create it "
                "(`headwater topics create`) or take it out of the application"
            ) from None

    def _refresh(self) -> TopicInfo:
        now = self._clock.monotonic_ms()
        if self._refreshed_ms is not None and now - self._refreshed_ms < REFRESH_MS:
            return self._topic()
        self._refreshed_ms = now
        info = self._topic(fresh=True)
        for topic in self._source.watch:
            if topic == self._source.topic:
                continue
            try:
                partitions = self._cluster.partitions(topic, fresh=True)
            except UnknownTopic:
                self._watched = {place: at for place, at in self._watched.items() if place[0] != topic}
                continue
            new = [partition for partition in partitions if (topic, partition) not in self._watched]
            if new:
                ends = self._cluster.offsets(topic, dict.fromkeys(new, LATEST))
                self._watched |= {(topic, partition): end for partition, end in ends.items()}
        return info

    def _continued(self, start: SourceOffset, info: TopicInfo) -> SourceOffset:
        """Return `start` for the topic as it is now: with new partitions, or begun anew if it is another."""
        topic_id = _id(info)
        if start.topic_id is not None and topic_id is not None and start.topic_id != topic_id:
            if self._source.lost == "fail":
                raise TopicChanged(
                    f"topic {self._source.topic} was deleted and created again since the query last read it. To go "
                    'on with the new one declare it with lost="skip"; to start over delete the checkpoint'
                )
            logger.warning("topic %s was created again: it is read from its start", self._source.topic)
            self._activity = Activity(self._source.idle_ms)
            self._highs.clear()
            offsets = dict.fromkeys(info.leaders, 0)
            return SourceOffset(offsets, {}, start.watermark, topic_id, start.starts)
        gone = [partition for partition in start.offsets if partition not in info.leaders]
        if gone:
            raise TopicChanged(f"topic {self._source.topic} has lost its partitions {gone}")
        new = {partition: 0 for partition in info.leaders if partition not in start.offsets}
        return replace(start, offsets={**start.offsets, **new}, topic_id=start.topic_id or topic_id)

    def _look(self, at: SourceOffset, wait_ms: int) -> None:
        topic = self._source.topic
        positions = {(topic, partition): offset for partition, offset in at.offsets.items()}
        found = poll(self._cluster, {**positions, **self._watched}, wait_ms)
        for place, bounds in found.items():
            if place[0] == topic:
                self._ends[place[1]] = self._end(place[1], at.offsets[place[1]], bounds)
            else:
                self._watched[place] = (
                    bounds.end if bounds else self._cluster.offsets(*_last(place))[place[1]]
                )
        self._activity.observe(self._ends, self._clock.monotonic_ms())

    def _end(self, partition: int, wanted: int, bounds: Bounds | None) -> int:
        if bounds is not None and wanted <= max(bounds.end, 0):
            return bounds.end
        topic = self._source.topic
        first = self._cluster.offsets(topic, {partition: EARLIEST})[partition]
        end = self._cluster.offsets(topic, {partition: LATEST})[partition]
        # A partition or a topic that is new is read from 0: that its first records are gone is no loss of ours.
        if (self._source.lost == "fail" and wanted > 0) or wanted > end:
            raise RecordsLost(topic, partition, wanted, first, end)
        return end

    def _admitted_ends(self) -> dict[int, int]:
        if self._targets is None:
            return self._ends
        return {partition: min(end, self._targets.get(partition, 0)) for partition, end in self._ends.items()}

    # Time

    def _fold(self, at: SourceOffset) -> None:
        for partition, high in at.highs.items():
            self._highs[partition] = max(high, self._highs.get(partition, high))
        for report in self._listener.take():
            self._note(report)

    def _note(self, report: Report) -> None:
        if report.high is not None:
            self._highs[report.partition] = max(report.high, self._highs.get(report.partition, report.high))
        if report.offsets:
            size = report.bytes_read / report.offsets
            self._row_bytes[report.partition] = (self._row_bytes.get(report.partition, size) + size) / 2
        if report.late or report.dead or report.skipped:
            logger.warning(
                "%s-%d up to offset %d: %d late, %d malformed, %d gone before they were read",
                self._source.topic, report.partition, report.end, report.late, report.dead, report.skipped,
            )  # fmt: skip

    def _told(self, at: SourceOffset) -> SourceOffset:
        """Return `at` with the time that it is now."""
        if self._source.event_time is None:
            return at
        now = self._clock.monotonic_ms()
        counted = self._activity.counted(at.offsets, self._highs, now)
        reached = watermark(self._highs, counted, self._source.lateness_ms, at.watermark)
        if self._meeting is not None:
            if self._activity.idle(at.offsets, now) or self._is_read(at):
                reached = later(reached, self._meeting.lowest())
            reached = later(reached, self._latest_lag())
        starts = at.starts if reached is None or self._starts is None else self._starts
        return replace(at, watermark=reached, starts=starts)

    def _is_read(self, at: SourceOffset) -> bool:
        """Tell whether a table that is read up to now has been: nothing is to be waited for then."""
        if self._source.envelope is None or self._targets is None:
            return False
        return all(at.offsets.get(partition, 0) >= end for partition, end in self._targets.items())

    def _quiet_ms(self) -> dict[int, int]:
        """Return for how long each partition had been quiet when the last record of the query's topics came.

        Nothing more comes and nobody waits, so that is the moment that it is now. It is told by the timestamps
        of records: the same however long after it they are read.
        """
        newest: dict[str, dict[int, int]] = {}
        for topic in {self._source.topic, *self._source.watch}:
            with suppress(UnknownTopic):
                newest[topic] = self._cluster.newest(topic, self._cluster.partitions(topic, fresh=True))
        now = min(self._clock.wall_ms(), max(at for times in newest.values() for at in times.values()))
        return {
            partition: self._source.idle_ms if at < 0 else max(0, now - at)
            for partition, at in newest[self._source.topic].items()
        }

    def _latest_lag(self) -> int | None:
        """Return the time that this source is not to lag behind, by those that wait for it so long and no longer."""
        if self._meeting is None or self._source.wait_ms is None:
            return None
        leading = self._meeting.slowest(self._source.leaders)
        return None if leading is None else leading - self._source.wait_ms

    def _patience(self) -> int:
        idle = self._activity.next_idle_in(self._clock.monotonic_ms()) if self._source.event_time else None
        return WAIT_MS if idle is None else min(WAIT_MS, idle)

    # Groups

    def _note_done(self, end: SourceOffset) -> None:
        if end.offsets != self._committed:
            self._uncommitted = dict(end.offsets)

    def _commit_group(self, *, at_once: bool = False) -> None:
        if self._source.group is None or self._uncommitted is None:
            return
        now = self._clock.monotonic_ms()
        if not at_once and now - self._committed_ms < COMMIT_MS:
            return
        self._committed_ms = now
        self._cluster.commit_group(self._source.group, self._source.topic, self._uncommitted)
        self._committed, self._uncommitted = self._uncommitted, None


def starting_offsets(cluster: Cluster, source: TopicSource) -> dict[int, int]:
    """Return the offsets at which `source.start` begins: the earliest, the latest, or those of a time."""
    if source.offsets:
        known = dict(source.offsets)
        new = [each for each in cluster.partitions(source.topic, fresh=True) if each not in known]
        return known | cluster.offsets(source.topic, dict.fromkeys(new, EARLIEST))
    match source.start:
        case "earliest":
            at = EARLIEST
        case "latest":
            at = LATEST
        case text:
            try:
                moment = datetime.fromisoformat(text)
            except ValueError:
                raise SettingError(
                    f"start={text} does not fit: it must be earliest, latest or a time in ISO 8601"
                ) from None
            at = int(moment.timestamp() * 1000)
    try:
        return cluster.offsets(source.topic, dict.fromkeys(cluster.partitions(source.topic, fresh=True), at))
    except UnknownTopic:
        raise SourceError(f"there is no topic named {source.topic}: create it first") from None


def _id(info: TopicInfo) -> str | None:
    return str(info.topic_id) if info.topic_id is not None else None


def _last(place: tuple[str, int]) -> tuple[str, Mapping[int, int]]:
    return place[0], {place[1]: LATEST}
