"""Places in a captured database, so that whoever writes there can wait for a view of it.

A place is `CAPTURE@POSITION`, with the capture's name as `headwater capture status` shows it and the position as its
database says it: an LSN of Postgres (`SELECT pg_current_wal_lsn()`), a file and position of MySQL and MariaDB
(`binlog.000003:1234`), the number of a change in SQLite. Capture writes the position that it has reached beside the
records before it; once that has passed the place, all of the place's changes are in their topics, and the ends of
these are what to wait for.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

from headwater.capture.mysql.offset import Offset as BinlogOffset
from headwater.capture.postgres.offset import lsn_number
from headwater.capture.reading import last_by_key
from headwater.capture.topics import POSITIONS_TOPIC
from headwater.client import LATEST, ClientError, Cluster
from headwater.core.urls import KafkaUrl
from headwater.serve.broker import BrokerAway
from headwater.serve.errors import HttpError

__all__ = ["Captured", "has_passed"]

_DEADLINE_SECONDS = 5.0


def has_passed(position: Mapping[str, Any], asked: str) -> bool:
    """Tell whether a capture's position is at a place of its database, or behind it; `ValueError` if it is none.

    >>> has_passed({"lsn": "16/B374D848"}, "16/B374D000"), has_passed({"file": "b.000009", "pos": 4}, "b.000010:4")
    (True, False)
    """
    if "lsn" in position:
        return lsn_number(str(position["lsn"])) >= lsn_number(asked)
    if "file" in position:
        file, _, at = asked.rpartition(":")
        reached = BinlogOffset.order((str(position["file"]), int(position["pos"])))
        return reached >= BinlogOffset.order((file, int(at)))
    return int(position["seq"]) >= int(asked)


class Captured:
    """Asks the broker how far captures are."""

    def __init__(self, url: KafkaUrl) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._cluster: Cluster | None = None

    def ends(self, capture: str, asked: str) -> dict[tuple[str, int], int] | None:
        """Return the ends of a capture's topics, or None while it has not passed a place of its database."""
        with self._lock:
            try:
                return self._ends(capture, asked)
            except ClientError as error:
                self.close()
                raise BrokerAway(str(error)) from None

    def _ends(self, capture: str, asked: str) -> dict[tuple[str, int], int] | None:
        if self._cluster is None:
            self._cluster = Cluster(self._url, "headwater-serve", deadline_seconds=_DEADLINE_SECONDS)
        cluster = self._cluster
        record = last_by_key(cluster, POSITIONS_TOPIC, capture.encode())
        if record is None or record.value is None:
            raise HttpError(
                404, f"there is no capture named {capture}: `headwater capture status` shows them"
            )
        said = json.loads(record.value)
        try:
            if not has_passed(said["position"], asked):
                return None
        except ValueError:
            raise HttpError(
                400,
                f"{asked} is no position in the database of {capture}: an LSN, FILE:POSITION or a number is",
            ) from None
        found: dict[tuple[str, int], int] = {}
        for topic in said["topics"].values():
            ends = cluster.offsets(topic, dict.fromkeys(cluster.partitions(topic), LATEST))
            found |= {(topic, partition): end for partition, end in ends.items()}
        return found

    def close(self) -> None:
        """Let go of the broker."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None
