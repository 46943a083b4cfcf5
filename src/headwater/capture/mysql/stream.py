"""The changes behind a place in the binary log.

`mysql-replication` says hello to the server as a replica does, and asks for the log by GTID or by file and position.
The events are then read here (see `binlog` and `rows`): its own rows lose zero dates, empty sets, and their order.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pymysql
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import RotateEvent

from headwater.capture.change import Batch, Change, Row
from headwater.capture.mysql.binlog import (
    Commit,
    Events,
    Heartbeat,
    Prepared,
    Query,
    Rotate,
    Rows,
    TableMap,
    Transaction,
)
from headwater.capture.mysql.config import Config
from headwater.capture.mysql.connection import Packets, understood
from headwater.capture.mysql.history import History
from headwater.capture.mysql.offset import Gtids, Offset, Place
from headwater.capture.mysql.payload import Payload
from headwater.capture.mysql.rows import RowReader
from headwater.capture.mysql.seen import Seen
from headwater.capture.mysql.text import Texts
from headwater.capture.source import CaptureError

__all__ = ["Stream"]

_BATCH_ROWS = 5000
_BATCH_BYTES = 1 << 20
_BATCH_SECONDS = 0.5
_HEARTBEAT_SECONDS = 0.25
_SILENCE_SECONDS = 15
"""How long a server that sends heartbeats may say nothing before the network counts as cut."""


class Stream:
    """Follows one server from an offset."""

    def __init__(
        self,
        config: Config,
        offset: Offset,
        history: History,
        seen: Seen,
        texts: Texts,
        *,
        is_mariadb: bool,
        end: Place,
    ) -> None:
        self._config = config
        self._offset = offset
        self._history = history
        self._seen = seen
        self._texts = texts
        self._is_mariadb = is_mariadb
        # Where the log ended when we began, and whether we are there.
        self._log_end: Place | None = end
        self._connection: Any = None
        self._events = Events(checksums=False)  # the first event says whether there are
        self._file = offset.file
        self._maps: dict[int, RowReader | None] = {}
        self._readers: dict[tuple[Any, ...], RowReader] = {}
        self._changes: list[Change] = []
        self._bytes = 0
        # Behind the last transaction that is over.
        self._done: Place = offset.place
        self._gtids = Gtids(offset.gtid) if offset.gtid is not None else None
        # How much of the next one had been yielded before we began.
        self._before = (offset.transaction, offset.event, offset.row) if offset.transaction else None
        # The one that is not over.
        self._transaction: Transaction | None = None
        self._name = ""
        self._begun: Place = offset.place
        self._event = 0
        self._row = 0
        self._has_rows = False
        self._handlers: dict[type[Any], Callable[[Any], Iterable[Batch]]] = {
            Rotate: self._rotate,
            Transaction: self._begin,
            Query: self._query,
            Heartbeat: self._heartbeat,
            Commit: lambda commit: self._end(commit.end),
            Prepared: lambda prepared: self._end(prepared.end),
            TableMap: self._table_map,
            Rows: self._rows,
            Payload: self._payload,
        }

    def batches(self) -> Iterator[Batch]:
        """Yield changes as they come, and batches without any while none do, until the server ends its log."""
        with understood(self._config):
            packets = self._connect()
            yielded = time.monotonic()
            while True:
                for packet in packets.read():
                    if packet[0] != 0:
                        if self._changes:
                            yield self._cut()
                        return
                    try:
                        event = self._events.read(packet[1:])
                        handler = self._handlers.get(type(event))
                        for batch in handler(event) if handler is not None else ():
                            yielded = time.monotonic()
                            yield batch
                    except CaptureError:
                        if self._changes:  # nobody has to wait for these until the rest is mended
                            yield self._cut()
                        raise
                is_whole = self._changes and self._transaction is None and not packets.ready()
                if is_whole or time.monotonic() - yielded >= _BATCH_SECONDS:
                    yielded = time.monotonic()
                    yield self._cut()

    def close(self) -> None:
        """Leave the server."""
        if self._connection is not None:
            self._connection._force_close()
            self._connection = None

    def _connect(self) -> Packets:
        # It warns about settings that matter to its own way to read rows.
        logging.getLogger("pymysqlreplication").setLevel(logging.ERROR)
        gtid = self._offset.gtid if self._config.gtid else None
        reader = BinLogStreamReader(
            connection_settings={**self._config.connecting(), "read_timeout": _SILENCE_SECONDS},
            server_id=self._config.server_id,
            blocking=True,
            resume_stream=True,
            log_file=self._offset.file,
            log_pos=self._offset.pos,
            auto_position=gtid or None,
            is_mariadb=self._is_mariadb and bool(gtid),
            slave_heartbeat=_HEARTBEAT_SECONDS,
            only_events=[RotateEvent],
            enable_logging=False,
            pymysql_wrapper=_Connecting(),
        )
        try:
            # The first event is the server's word on where it begins; the connection is ours from there on.
            first = reader.fetchone()
        finally:
            self._connection = getattr(reader, "_stream_connection", None)
            other = getattr(reader, "_ctl_connection", None)
            if other is not None:
                other._force_close()
        self._file = first.next_binlog
        return Packets(self._connection)

    def _payload(self, payload: Payload) -> Iterator[Batch]:
        for event in self._events.inside(payload):
            yield from self._handlers[type(event)](event)

    def _heartbeat(self, _: Heartbeat) -> Iterable[Batch]:
        self._log_end = None  # the server says so when it has nothing more
        return ()

    def _rotate(self, event: Rotate) -> Iterable[Batch]:
        self._maps.clear()  # a server that was started again numbers its tables anew
        if event.file != self._file:
            self._file = event.file
            if self._transaction is None:
                self._done = event.file, event.position
        return ()

    def _begin(self, event: Transaction) -> Iterable[Batch]:
        self._transaction = event
        self._begun = self._file, event.begin
        self._name = event.gtid or f"{self._file}:{event.begin}"
        self._event = self._row = 0
        self._has_rows = False
        if self._seen.snapshot is not None:
            self._seen.settle(self._begun)
        return ()

    def _query(self, event: Query) -> Iterable[Batch]:
        word = event.text[:12].upper()
        if word.startswith(("BEGIN", "XA START")):
            if self._transaction is None:
                self._begin(Transaction(None, prepared=False, begin=event.begin, time_us=event.time_us))
            if self._transaction is not None:
                prepared = self._transaction.prepared or word.startswith("XA")
                self._transaction = self._transaction._replace(prepared=prepared, is_open=True)
            return ()
        if word.startswith(("SAVEPOINT", "XA END", "XA COMMIT", "XA ROLLBACK")):
            return () if word.startswith(("SAVEPOINT", "XA END")) else self._end(event.end)
        if word.startswith("ROLLBACK") and self._has_rows:
            raise CaptureError(
                f"{self._config} has the rows of a transaction in its log that was rolled back, as tables without"
                " transactions were written in it too: keep those in InnoDB; `headwater capture snapshot` takes a new"
                " snapshot"
            )
        if not word.startswith(("COMMIT", "ROLLBACK")):
            self._statement(event)
            if self._transaction is not None and self._transaction.is_open:
                return ()
        return self._end(event.end)

    def _statement(self, event: Query) -> None:
        place = self._begun if self._transaction is not None else (self._file, event.begin)
        for table in self._history.apply(event, ignores=lambda name: self._seen.is_all(name, place)):
            self._seen.check_whole(table, place)
            source = {"server_id": 0, "gtid": self._gtid, "file": self._file, "pos": event.begin}
            self._changes.append(Change("t", table.public, None, None, event.time_us, self._name, source))

    def _end(self, end: int) -> Iterable[Batch]:
        if self._gtid is not None and self._gtids is not None:
            self._gtids.add(self._gtid)
        if self._before is not None and self._before[0] == self._name:
            self._before = None
        self._transaction = None
        self._done = self._file, end
        if len(self._changes) >= _BATCH_ROWS or self._bytes >= _BATCH_BYTES:
            return (self._cut(),)
        return ()

    @property
    def _gtid(self) -> str | None:
        return self._transaction.gtid if self._transaction is not None else None

    def _table_map(self, event: TableMap) -> Iterable[Batch]:
        name = f"{event.schema}.{event.name}"
        if not self._history.captures(event.schema, event.name) or self._seen.is_all(name, self._begun):
            self._maps[event.table_id] = None
            return ()
        table = self._history.fit(event)
        key = event.columns, id(table)
        reader = self._readers.get(key)
        if reader is None:
            reader = self._readers[key] = RowReader(table, list(event.columns), self._texts)
        self._maps[event.table_id] = reader
        return ()

    def _rows(self, event: Rows) -> Iterable[Batch]:
        reader = self._maps.get(event.table_id)
        transaction = self._transaction
        if reader is not None and transaction is not None:
            if transaction.prepared:
                raise CaptureError(
                    f"{reader.table} was changed in a distributed transaction (XA), of which the log does not say at"
                    f" once how it ends: {self._name}. Write captured tables in plain transactions"
                )
            yield from self._captured(event, reader, transaction)
        self._event += 1
        self._row = 0

    def _captured(self, event: Rows, reader: RowReader, transaction: Transaction) -> Iterator[Batch]:
        table, public, op = reader.table, reader.table.public, event.op
        done = self._rows_done()
        source = {
            "server_id": event.server_id,
            "gtid": transaction.gtid,
            "file": self._file,
            "pos": event.begin,
        }
        data, at, size = event.data, 0, len(event.data)
        changes, seen = self._changes, self._seen
        self._bytes += size
        self._has_rows = True
        while at < size:
            row, at = reader.read(data, at)
            before: Row | None = None
            after: Row | None = row
            if op == "u":
                before = row
                after, at = reader.read(data, at)
            elif op == "d":
                before, after = row, None
            if self._row >= done:
                if seen.snapshot is None:
                    changes.append(Change(op, public, before, after, transaction.time_us, self._name, source))
                elif news := seen.news(table, op, before, after, self._begun):
                    changes.append(
                        Change(news[0], public, *news[1:], transaction.time_us, self._name, source)
                    )
            self._row += 1
            if len(changes) >= _BATCH_ROWS:
                yield self._cut()
                changes = self._changes
        if self._bytes >= _BATCH_BYTES:
            yield self._cut()

    def _rows_done(self) -> int:
        """Return how many rows of the next event had been yielded before we began."""
        if self._before is None or self._before[0] != self._name or self._event > self._before[1]:
            return 0
        return self._before[2] if self._event == self._before[1] else 1 << 62

    def _cut(self) -> Batch:
        """Return what there is, with the place to go on from."""
        changes, self._changes, self._bytes = self._changes, [], 0
        offset = Offset(
            *self._done,
            None if self._gtids is None else str(self._gtids),
            self._history.dump,
            snapshot=self._seen.snapshot,
        )
        part = self._before
        if self._transaction is not None and (self._event or self._row):
            here = self._name, self._event, self._row
            part = max(part, here) if part is not None and part[0] == self._name else here
        if part is not None:
            offset = replace(offset, transaction=part[0], event=part[1], row=part[2])
        if self._log_end is not None and Offset.order(self._done) >= Offset.order(self._log_end):
            self._log_end = None
        return Batch(changes, offset.position, is_behind=self._log_end is not None)


class _Connecting:
    """Makes the two connections that are asked for, and no third: it would begin anew where we have been already."""

    def __init__(self) -> None:
        self._left = 2

    def __call__(self, **settings: Any) -> Any:
        if not self._left:
            raise pymysql.err.OperationalError(2013, "the server closed the connection")
        self._left -= 1
        if "db" in settings:  # an older name, of which PyMySQL warns
            settings["database"] = settings.pop("db")
        return pymysql.connect(**settings)
