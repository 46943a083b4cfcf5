"""The Redis of a view store: names of keys, transactions, and what goes wrong.

A change is prepared from what is read, and then made in one MULTI … EXEC, on condition (WATCH) that nobody has
changed the view meanwhile; otherwise it is prepared anew. Redis runs the whole of it between two other commands, and
its append-only file holds the whole of it or nothing: what is lost in a crash, is lost with its epoch.

    headwater:identity, :version       a random text; a number that grows with every commit
    headwater:views                    the names of the views, sorted
    headwater:epoch:QUERY              the last epoch of a query
    headwater:statuses                 what pipelines say of themselves, by name
    headwater:view:NAME                what is known of a view, its token among it
    headwater:view:NAME:rows           "TOKEN AT WRITTEN ROW" by key
    headwater:view:NAME:keys           the keys, sorted
    headwater:view:NAME:feed           the changes, a stream whose ids are tokens
    headwater:view:NAME:field:COLUMN   the index of a column, sorted
    headwater:view:NAME:written        keys by the time of their last write, where there is a time-to-live
    headwater:view:NAME:past…          what rows were, by number (past), time (past:until) and key (past:keys)
    headwater:view:NAME:deliveries…    messages on their way (deliveries, :waiting, :dead)
    headwater:view:NAME:incidents…     groups that are quiet, by name, by time (incidents:until), and those that hold
                                       rows back (incidents:held)
"""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from headwater.views.errors import StoreUnavailable, ViewError
from headwater.views.store import shown

try:
    import redis
    from redis.backoff import ExponentialBackoff
    from redis.retry import Retry
except ImportError:
    raise ViewError("views in Redis need its client: pip install 'headwater[redis]'") from None

__all__ = ["CHUNK", "PREFIX", "Server", "chunks", "name_of"]

PREFIX = "headwater:"
CHUNK = 2000
"""How many fields or members one command carries."""

_TRIES = 200
_CONNECT_SECONDS = 10
_ANSWER_SECONDS = 60

T = TypeVar("T")
_log = logging.getLogger(__name__)


def name_of(view: str, part: str = "") -> str:
    """Return the name of a key of a view."""
    return f"{PREFIX}view:{view}{':' if part else ''}{part}"


def chunks(items: list[T]) -> Iterator[list[T]]:
    """Yield a list in parts that one command can carry."""
    for start in range(0, len(items), CHUNK):
        yield items[start : start + CHUNK]


class Server:
    """A client, and transactions through it."""

    def __init__(self, url: str) -> None:
        self.shown = shown(url)
        self._closed = False
        try:
            self._client: Any = redis.Redis.from_url(
                url,
                socket_connect_timeout=_CONNECT_SECONDS,
                socket_timeout=_ANSWER_SECONDS,
                # A connection that the server has closed meanwhile is not worth a word.
                retry=Retry(ExponentialBackoff(cap=0.5, base=0.05), 3),
            )
        except ValueError as error:
            raise ViewError(f"{self.shown} is no address of a Redis: {error}") from error
        try:
            with self.using() as client:
                client.set(f"{PREFIX}identity", uuid.uuid4().hex[:12], nx=True)
                self.identity: str = client.get(f"{PREFIX}identity").decode()
                self._look_at_durability(client)
        except ViewError:
            self._client.close()
            raise

    @contextmanager
    def using(self) -> Iterator[Any]:
        """Use the client; what it raises becomes an error of ours."""
        if self._closed:
            raise ViewError(f"the view store {self.shown} is closed")
        try:
            yield self._client
        except redis.AuthenticationError as error:
            raise StoreUnavailable(
                f"cannot open the view store {self.shown}: {error}: check the user and the password, "
                "redis://USER:PASSWORD@HOST:PORT/NUMBER"
            ) from error
        except (redis.ConnectionError, redis.TimeoutError) as error:
            raise StoreUnavailable(
                f"the view store {self.shown} does not answer: {error}: check the host and the port, and that "
                "Redis runs there"
            ) from error
        except redis.RedisError as error:
            raise ViewError(f"the view store {self.shown} failed: {error}") from error

    def transact(self, watched: list[str], prepare: Callable[[Any, Any], T]) -> T:
        """Make a change that `prepare` queues, given a client to read with and the transaction to write with.

        It runs again where one of the keys watched has changed before the change was made.
        """
        with self.using() as client:
            for attempt in range(_TRIES):
                try:
                    with client.pipeline(transaction=True) as transaction:
                        transaction.watch(*watched)
                        transaction.multi()
                        result = prepare(client, transaction)
                        if len(transaction):
                            transaction.incr(f"{PREFIX}version")
                            transaction.execute()
                        return result
                except redis.WatchError:
                    time.sleep(random.random() * min(0.2, 0.002 * (attempt + 1)))
        raise StoreUnavailable(
            f"the view store {self.shown} could not commit within {_TRIES} tries: {watched[0]} is changed all "
            "the time by others"
        )

    def close(self) -> None:
        """Hang up."""
        self._closed = True
        self._client.close()

    def _look_at_durability(self, client: Any) -> None:
        """Say it where a crash of Redis would lose what was committed."""
        try:
            appendonly = client.config_get("appendonly").get("appendonly")
            appendfsync = client.config_get("appendfsync").get("appendfsync")
            policy = client.config_get("maxmemory-policy").get("maxmemory-policy")
            limit = int(client.config_get("maxmemory").get("maxmemory") or 0)
        except redis.ResponseError:
            return  # a service that does not tell
        if (appendonly, appendfsync) != ("yes", "always"):
            _log.warning(
                "%s keeps views with appendonly %s and appendfsync %s: a crash of Redis loses the last commits, "
                "which then have to be rebuilt; set appendonly yes and appendfsync always",
                self.shown,
                appendonly,
                appendfsync,
            )
        if limit and policy != "noeviction":
            _log.warning(
                "%s evicts keys when memory runs out (%s): set maxmemory-policy noeviction",
                self.shown,
                policy,
            )
