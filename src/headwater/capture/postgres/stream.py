"""The replication stream: the decoded log as it comes, and what the server may forget."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import psycopg

from headwater.capture.change import Batch
from headwater.capture.postgres.config import Config
from headwater.capture.postgres.connection import Session, answering, quoted, replication_command
from headwater.capture.postgres.gaps import fill
from headwater.capture.postgres.offset import lsn_text
from headwater.capture.postgres.pgoutput import MalformedMessage, decode_keepalive, status_update
from headwater.capture.postgres.transactions import Transactions
from headwater.capture.source import TryAgain

__all__ = ["Stream"]

BATCH_CHANGES = 2000
BATCH_BYTES = 4 * 1024 * 1024
_SILENCE_SECONDS = 60.0
"""A server that does not even answer for so long is gone."""
_IDLE_SECONDS = 0.5
_STATUS_SECONDS = 5.0
_XLOG_DATA, _KEEPALIVE = b"wk"


class Stream:
    """One START_REPLICATION: yields batches, confirms what it is told to, and now and then has things checked."""

    def __init__(
        self,
        config: Config,
        replication: Session,
        catalog: Session,
        transactions: Transactions,
        check: Callable[[], None],
    ) -> None:
        self._config = config
        self._connection = replication.pgconn
        self._catalog = catalog
        self._transactions = transactions
        self._check = check
        self._confirmed = 0
        self._told_at = 0.0
        self._asked_at = 0.0
        self._unanswered_since: float | None = None
        self._wal_end = 0
        publication = quoted(config.publication).replace("'", "''")
        replication_command(
            replication,
            f'START_REPLICATION SLOT "{config.slot}" LOGICAL {lsn_text(transactions.offset.lsn)}'
            f" (proto_version '1', publication_names '{publication}')",
        )

    def confirm(self, lsn: int) -> None:
        """Let the server forget what is before a place, with the next status that it is told."""
        if lsn > self._confirmed:
            self._confirmed = lsn
            self._told_at = 0.0

    def batches(self, caught_up_lsn: int) -> Iterator[Batch]:
        """Yield changes as they come, and batches without any; the log has more at least up to a place."""
        transactions = self._transactions
        yielded_at = time.monotonic()
        while True:
            more = self._read()
            now = time.monotonic()
            if transactions.is_between and not more:
                transactions.advance(self._wal_end)
            is_due = transactions.changes and (transactions.is_between or more)
            if is_due or now - yielded_at >= _IDLE_SECONDS:
                if transactions.gaps:
                    with answering(self._catalog, _SILENCE_SECONDS):
                        fill(self._catalog, transactions)
                is_behind = not transactions.is_between or transactions.offset.lsn < caught_up_lsn
                yield transactions.batch(is_behind=is_behind)
                yielded_at = time.monotonic()
            elif not more:
                self._wait()
            self._tell(time.monotonic())

    def close(self) -> None:
        """Confirm what is left to be, before the connection goes."""
        if self._confirmed and not self._told_at:
            with suppress(psycopg.Error):  # the next one to follow confirms it, too
                self._send(wants_reply=False)

    def _read(self) -> bool:
        """Take in what has come; tell whether there may be more at once."""
        connection, transactions = self._connection, self._transactions
        take, get = transactions.take, connection.get_copy_data
        consumed = False
        while True:
            size, data = get(1)
            if size > 0:
                kind = data[0]
                if kind == _XLOG_DATA:
                    take(bytes(data))
                    if len(transactions.changes) >= BATCH_CHANGES or transactions.size >= BATCH_BYTES:
                        return True
                elif kind == _KEEPALIVE:
                    self._hear(bytes(data))
                else:
                    raise MalformedMessage(f"the replication stream has a message of the kind {chr(kind)!r}")
            elif size == 0:
                if consumed:
                    return False
                # Only when nothing is left: a fast server would fill libpq's buffer without end otherwise.
                connection.consume_input()
                consumed = True
            else:
                self._ended()

    def _hear(self, data: bytes) -> None:
        alive = decode_keepalive(data)
        self._wal_end = alive.wal_end
        if alive.wants_reply:
            self._send(wants_reply=False)

    def _ended(self) -> None:
        result = self._connection.get_result()
        if result is not None and result.error_message:
            raise psycopg.errors.error_from_result(result)
        raise TryAgain(f"{self._config.place} ended the stream of changes")

    def _wait(self) -> None:
        ready, _, _ = select.select(
            [self._connection.socket], [], [], min(_IDLE_SECONDS, self._config.heartbeat)
        )
        if ready:
            self._unanswered_since = None
        elif self._unanswered_since and time.monotonic() - self._unanswered_since > _SILENCE_SECONDS:
            raise TryAgain(
                f"{self._config.place} was not heard of for {_SILENCE_SECONDS:.0f} s: the network may be cut"
            )

    def _tell(self, now: float) -> None:
        # Asking for an answer has the server say how far it has read its log, which is what frees an idle slot.
        asks = now - self._asked_at >= self._config.heartbeat
        if asks or now - self._told_at >= _STATUS_SECONDS:
            self._send(wants_reply=asks)
            if asks:
                self._asked_at = now
                self._unanswered_since = self._unanswered_since or now
                with answering(self._catalog, _SILENCE_SECONDS):
                    self._check()

    def _send(self, *, wants_reply: bool) -> None:
        update = status_update(self._confirmed, time.time_ns() // 1000, wants_reply=wants_reply)
        self._connection.put_copy_data(update)
        self._connection.flush()
        self._told_at = time.monotonic()
