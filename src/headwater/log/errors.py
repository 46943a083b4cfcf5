"""What can go wrong with the log.

LogError
├── DirectoryLocked     another process has the data directory open
├── UnknownFormat       the data directory was written by a newer version, or is not one of ours
├── DamagedState        a log of the broker's own does not read, and without it there is no start
└── PartitionError      one partition refuses one operation; carries Kafka's error code
    ├── OffsetOutOfRange    before the log's start or past its end
    ├── DamagedRange        the bytes on disk at this offset fail their checksum
    ├── StorageFailed       a write or sync failed; the partition acknowledges nothing more
    └── StorageFull         no room for this append; earlier ones are safe, later ones may fit
"""

from __future__ import annotations

from headwater.core.errors import ErrorCode, HeadwaterError


class LogError(HeadwaterError):
    """Something is wrong with the log on disk."""


class DirectoryLocked(LogError):
    """Another process has the data directory open."""


class UnknownFormat(LogError):
    """The data directory is not one that this version can read."""


class DamagedState(LogError):
    """A log of the broker's own does not read, and without it nobody knows what the rest is."""


class PartitionError(LogError):
    """An operation that one partition refuses."""

    code = ErrorCode.unknown_server_error


class OffsetOutOfRange(PartitionError):
    """An offset before the log's start or past its end."""

    code = ErrorCode.offset_out_of_range


class DamagedRange(PartitionError):
    """A range of the log whose bytes fail their checksum."""

    code = ErrorCode.corrupt_message


class StorageFailed(PartitionError):
    """A write or sync failed, and with it all certainty about what is on disk."""

    code = ErrorCode.kafka_storage_error


class StorageFull(PartitionError):
    """The disk has no room for this append."""

    code = ErrorCode.kafka_storage_error
