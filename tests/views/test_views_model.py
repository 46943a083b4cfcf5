"""SQLite against a dictionary."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings

from effort import examples

from .views_model import StoreMachine


class SqliteMachine(StoreMachine):
    """A file in a directory of its own."""

    def new_store(self) -> str:
        self.directory = Path(tempfile.mkdtemp())
        return f"sqlite:///{self.directory}/views.db"

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.directory)


TestSqlite = SqliteMachine.TestCase
TestSqlite.settings = settings(max_examples=examples(25), stateful_step_count=25, deadline=None)
