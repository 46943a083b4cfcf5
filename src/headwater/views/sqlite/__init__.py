"""Views in one SQLite file."""

from headwater.views.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
