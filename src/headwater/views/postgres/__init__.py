"""Views in Postgres."""

from headwater.views.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
