"""The machine of the log, with a journal: what it made durable stays, through kills, power losses and failed syncs."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from log_helpers import NOW, TOPIC, TOPIC_ID
from test_log_machine import CONFIG, PROFILE, LogMachine

from effort import examples
from headwater.log import journal as journal_module
from headwater.log.directory import LogDirectory
from headwater.log.journal import Journal, JournalWork
from headwater.record.codecs import Codec


class JournalMachine(LogMachine):
    """One partition whose rounds go to the journal, or to its own files, or to both at once."""

    def __init__(self) -> None:
        super().__init__()
        self.entry: tuple[JournalWork, int] | None = None
        self.defaults = journal_module.LEAST_BYTES, journal_module.MOST
        journal_module.LEAST_BYTES, journal_module.MOST = 32 * 1024, 8 * 1024

    def teardown(self) -> None:
        super().teardown()
        journal_module.LEAST_BYTES, journal_module.MOST = self.defaults

    @property
    def journal(self) -> Journal:
        assert self.logs.journal is not None
        return self.logs.journal

    @initialize()
    def open(self) -> None:
        self.logs = LogDirectory(
            self.disk.root,
            synced=True,
            disk=self.disk,
            open_files=2,
            journal_bytes=1,
            archive=self.disk.root / "archive",
        )
        self.logs.open_topic(TOPIC, TOPIC_ID, range(1), CONFIG, NOW)
        self.logs.settle({TOPIC_ID})
        self.flight = self.entry = None
        read = self.disk.bytes_read
        self.journal.prepare()
        self.journal.activate()
        assert self.disk.bytes_read == read

    @rule(sizes=st.lists(st.sampled_from([10, 200, 900]), min_size=1, max_size=6), last=st.booleans())
    def write_entries(self, sizes: list[int], last: bool) -> None:
        """Append and have it in the journal, some times over, as a producer that waits does."""
        for size in sizes:
            if self.entry is not None:
                self.end_entry()
            self.append(count=1 + size % 3, size=size, late=0, producer=None, codec=Codec.NONE)
            self.begin_entry(run=True)
            if self.entry is None:
                self.sync()  # what the journal cannot take
        if last and self.entry is not None:
            self.end_entry()

    @rule(size=st.sampled_from([10, 900]))
    def write_entries_at_length(self, size: int) -> None:
        self.write_entries([size] * 8, last=True)

    @precondition(lambda self: self.entry is None)
    @rule(run=st.booleans())
    def begin_entry(self, run: bool) -> None:
        work = self.journal.begin([self.log])
        if work is not None and work.places:
            self.entry = work, self.end
            if run:
                work.run()

    @precondition(lambda self: self.entry is not None)
    @rule()
    def end_entry(self) -> None:
        assert self.entry is not None
        (work, end), self.entry = self.entry, None
        work.run()
        work.end()
        self._synced(end)

    @precondition(lambda self: self.entry is None)
    @rule()
    def fail_entry(self) -> None:
        work = self.journal.begin([self.log])
        if work is not None and work.places:
            self.disk.fail_sync()
            work.run()
            work.end()
            assert self.journal.begin([self.log]) is None

    @rule()
    def lose_power_at_once(self) -> None:
        self.lose_power(None)

    @rule()
    def sync_what_is_full(self) -> None:
        if self.journal.take_full() and self.flight is None:
            self.begin_sync(run=True)


TestJournaled = JournalMachine.TestCase
TestJournaled.settings = settings(PROFILE, max_examples=examples(150))
