"""What tasks tell the driver of the partitions they have read: one line of JSON over a short connection.

The listener is in the driver's process of the source. A report that is lost costs nothing but time: the
watermark then waits for the partition's next one.
"""

from __future__ import annotations

import json
import logging
import secrets
import socket
import threading
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import NamedTuple

from headwater.pipeline.source.tasks import ReportTo

__all__ = ["Report", "ReportListener", "send_reports"]

logger = logging.getLogger(__name__)

_SECONDS = 2.0
_MAX_BYTES = 1024 * 1024


class Report(NamedTuple):
    """What a task has seen of one partition."""

    partition: int
    end: int
    high: int | None
    offsets: int
    bytes_read: int
    late: int = 0
    dead: int = 0
    skipped: int = 0


class ReportListener:
    """Takes reports on a port of its own until it is closed."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._reports: SimpleQueue[Report] = SimpleQueue()
        self._socket = socket.create_server((host, 0))
        self.address = ReportTo(host, self._socket.getsockname()[1], secrets.token_urlsafe(16))
        self._thread = threading.Thread(target=self._serve, name="headwater-reports", daemon=True)
        self._thread.start()

    def take(self) -> list[Report]:
        """Return what has come since the last time."""
        found = []
        while True:
            try:
                found.append(self._reports.get_nowait())
            except Empty:
                return found

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                try:
                    connection.settimeout(_SECONDS)
                    self._read(connection)
                except (OSError, ValueError, TypeError, KeyError) as error:
                    logger.warning("a report of a task does not read: %s", error)

    def _read(self, connection: socket.socket) -> None:
        data = b""
        while not data.endswith(b"\n") and len(data) < _MAX_BYTES:
            chunk = connection.recv(65536)
            if not chunk:
                break
            data += chunk
        document = json.loads(data)
        if not secrets.compare_digest(str(document["token"]), self.address.token):
            raise ValueError("it does not know the token")
        for row in document["reports"]:
            self._reports.put(Report(*row))
        connection.sendall(b"\n")


def send_reports(to: ReportTo, reports: Sequence[Report]) -> None:
    """Tell the driver, and wait until it knows; a driver that does not answer is let be."""
    line = json.dumps({"token": to.token, "reports": reports}) + "\n"
    try:
        with socket.create_connection((to.host, to.port), timeout=_SECONDS) as connection:
            connection.sendall(line.encode())
            connection.recv(1)
    except OSError as error:
        logger.warning("the driver takes no report at %s:%d: %s", to.host, to.port, error)
