"""Views in Redis."""

from headwater.views.redis.store import RedisStore

__all__ = ["RedisStore"]
