"""The data directory: one process's logs.

    lock                      held by the process that has the directory open
    format                    which version of this layout it is, and the cluster's id
    journal                   what was synced in place of segments, while a broker runs and after a crash
    topics/NAME.ID/PARTITION/ a partition's segments, indexes and checkpoint
    state/NAME/               the logs of the broker's own state machines

and, where there is one, the part of an archive that is this directory's (`headwater.log.archive`).

A topic's directory carries its id, so a topic that was deleted and made again shares nothing with its
former self. A partition's directory appears with its first record; deletion renames the topic's
directory first, so that a crash in its middle leaves something that only wants to be swept away.
Nothing is swept away on a guess: a directory that was renamed for a topic that turns out to be there still
gets its name back, and one that belongs to no known topic is set aside for the operator to look at.
"""

from __future__ import annotations

import base64
import fcntl
import json
import logging
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from headwater.log.config import LogConfig
from headwater.log.disk import Disk
from headwater.log.errors import DirectoryLocked, UnknownFormat
from headwater.log.journal import Journal
from headwater.log.open_files import OpenFiles
from headwater.log.partition import PartitionLog
from headwater.log.recovery import open_partition
from headwater.log.redo import redo

logger = logging.getLogger(__name__)

FORMAT = 2
_BEFORE_THE_JOURNAL = 1
_DELETED = ".deleted"
_ORPHAN = ".orphan"
_TOPIC = re.compile(r"(.+)\.([0-9a-f]{32})")


class LogDirectory:
    """The logs in one data directory."""

    def __init__(
        self,
        path: Path,
        *,
        synced: bool,
        disk: Disk | None = None,
        open_files: int = 1024,
        journal_bytes: int = 0,
        archive: Path | None = None,
    ) -> None:
        self.path = path
        self.disk = disk or Disk()
        self.synced = synced
        self.files = OpenFiles(self.disk, open_files)
        self._logs: dict[tuple[str, int], PartitionLog] = {}
        self._states: list[PartitionLog] = []
        self._doomed: list[Path] = []
        self.on_roll: Callable[[PartitionLog], object] | None = None
        """Called when a segment of a topic's log is full and another one begins."""
        self.on_drop: Callable[[list[Path]], object] | None = None
        """Called with the files of deleted segments, to have `remove` run elsewhere."""
        self.journal = Journal(self.disk, path, journal_bytes) if synced and journal_bytes else None
        self._make_root()
        self._lock = self._take_lock()
        try:
            self.cluster_id = self._check_format()
            self.disk.make_directory(path / "topics")
            self.disk.make_directory(path / "state")
            self.disk.sync_directory(path)
            redo(self.disk, path)
            self.archive = None if archive is None else archive / self.cluster_id
        except BaseException:
            os.close(self._lock)
            raise

    def _make_root(self) -> None:
        missing = [p for p in (self.path, *self.path.parents) if not p.exists()]
        for directory in reversed(missing):
            self.disk.make_directory(directory)
            self.disk.sync_directory(directory.parent)

    def _take_lock(self) -> int:
        fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise DirectoryLocked(
                f"{self.path} is in use by another process: stop it, or give this one a --data of its own"
            ) from None
        return fd

    def _check_format(self) -> str:
        path = self.path / "format"
        try:
            content = json.loads(path.read_bytes())
            version, cluster_id = int(content["version"]), str(content["cluster_id"])
        except FileNotFoundError:
            if any(self.path.joinpath(name).exists() for name in ("topics", "state")):
                raise UnknownFormat(
                    f"{path} is missing though there is data beside it: restore that file"
                ) from None
            return self._write_format(path, _new_cluster_id())
        except (ValueError, KeyError, TypeError):
            raise UnknownFormat(f"{path} does not read: restore it, or use another data directory") from None
        if version == _BEFORE_THE_JOURNAL:
            # A version that knows no journal would lose what is in one.
            return self._write_format(path, cluster_id)
        if version != FORMAT:
            raise UnknownFormat(
                f"{self.path} has format {version} and this version reads format {FORMAT}: use a newer Headwater"
            )
        return cluster_id

    def _write_format(self, path: Path, cluster_id: str) -> str:
        body = json.dumps({"version": FORMAT, "cluster_id": cluster_id}).encode() + b"\n"
        self.disk.write_file(path, body, durable=True)
        return cluster_id

    def __iter__(self) -> Iterator[PartitionLog]:
        return iter(self._logs.values())

    def get(self, topic: str, partition: int) -> PartitionLog | None:
        """Return the log of a partition."""
        return self._logs.get((topic, partition))

    def of_topic(self, topic: str, partitions: int) -> list[PartitionLog]:
        """Return the logs of a topic's partitions."""
        return [self._logs[topic, partition] for partition in range(partitions)]

    def open_state(self, name: str, now_ms: int) -> PartitionLog:
        """Open the log of one of the broker's own state machines."""
        directory = self.path / "state" / name
        log = open_partition(
            self.files,
            directory,
            name,
            0,
            LogConfig(segment_bytes=64 * 1024 * 1024),
            synced=True,  # without its state nobody knows whose the records are
            now_ms=now_ms,
        )
        self._states.append(log)
        return log

    def open_topic(
        self, topic: str, topic_id: uuid.UUID, partitions: range, config: LogConfig, now_ms: int
    ) -> None:
        """Open the logs of a topic's partitions, recovering what is there."""
        directory = self._topic_directory(topic, topic_id)
        doomed = self._doomed_directory(topic_id)
        if doomed.exists() and not directory.exists():
            self.disk.rename(doomed, directory)  # the crash took the topic's deletion back
        rolled, dropped = self._rolled, self._dropped  # one object each for thousands of partitions
        for partition in partitions:
            log = self._logs[topic, partition] = open_partition(
                self.files,
                directory / str(partition),
                topic,
                partition,
                config,
                synced=self.synced,
                now_ms=now_ms,
                archive=None if self.archive is None else self.archive / directory.name / str(partition),
            )
            log.on_roll, log.on_drop = rolled, dropped

    def _rolled(self, log: PartitionLog) -> None:
        if self.on_roll is not None:
            self.on_roll(log)

    def _dropped(self, paths: list[Path]) -> None:
        if self.on_drop is not None:
            self.on_drop(paths)
        else:
            self.remove(paths)

    def remove(self, paths: list[Path]) -> None:
        """Remove the files of deleted segments; any thread may do this."""
        for path in paths:
            try:
                self.disk.remove(path)
            except OSError as error:
                logger.warning("%s stays until the next start: %s", path, error)

    def reconfigure(self, topic: str, partitions: int, config: LogConfig) -> None:
        """Have a topic's logs obey new settings from now on."""
        for log in self.of_topic(topic, partitions):
            log.config = config

    def delete_topic(self, topic: str, topic_id: uuid.UUID, partitions: int) -> None:
        """Forget a topic's logs and rename their directory; `sweep` frees the space."""
        for partition in range(partitions):
            log = self._logs.pop((topic, partition), None)
            if log is not None:
                log.abandon()
        directory = self._topic_directory(topic, topic_id)
        if directory.exists():
            doomed = self._doomed_directory(topic_id)
            self.disk.rename(directory, doomed)
            self._doomed.append(doomed)

    def take_doomed(self) -> list[Path]:
        """Return the directories of topics deleted so far; the caller sweeps them once that is durable."""
        doomed, self._doomed = self._doomed, []
        return doomed

    def sweep(self, doomed: list[Path]) -> None:
        """Remove directories of deleted topics, and what they have in the archive; any thread may do this."""
        for directory in doomed:
            if self.archive is not None:
                for moved in self.archive.glob(f"*.{directory.name.removesuffix(_DELETED)}"):
                    shutil.rmtree(moved, ignore_errors=True)
            shutil.rmtree(directory, ignore_errors=True)

    def settle(self, known: set[uuid.UUID]) -> None:
        """After opening: doom what was deleted, and sync what a crash left unsynced.

        A directory of a topic that is not among the known ones may be what a deletion left, or all that is
        left of a topic whose metadata was lost: it is set aside and not removed.
        """
        ids = {topic_id.hex for topic_id in known}
        for directory in sorted((self.path / "topics").iterdir()):
            if directory.name.endswith(_DELETED):
                self._doomed.append(directory)
            elif (match := _TOPIC.fullmatch(directory.name)) and match[2] not in ids:
                aside = directory.with_name(directory.name + _ORPHAN)
                self.disk.rename(directory, aside)
                logger.error(
                    "%s belongs to no topic this broker knows: it is kept as %s; remove it if it is not missed",
                    directory, aside.name,
                )  # fmt: skip
        logs = [log for log in (*self._states, *self) if log.recovered]
        if self.synced and logs:
            # One call for all partitions, where a sync of each would take a second per five thousand.
            self.disk.sync_all()
            for log in logs:
                log.settled()

    def close(self) -> None:
        """Close every log with a checkpoint, and unlock the directory."""
        for log in (*self._states, *self._logs.values()):
            log.close()
        self._logs.clear()
        self._states.clear()
        if self.journal is not None:
            self.journal.close()
        os.close(self._lock)

    def _doomed_directory(self, topic_id: uuid.UUID) -> Path:
        return self.path / "topics" / f"{topic_id.hex}{_DELETED}"

    def _topic_directory(self, topic: str, topic_id: uuid.UUID) -> Path:
        # File names end at 255 bytes and topic names at 249: the id is what identifies.
        return self.path / "topics" / f"{topic[:200]}.{topic_id.hex}"


def _new_cluster_id() -> str:
    # Kafka's form: a UUID in URL-safe base64 without padding.
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
