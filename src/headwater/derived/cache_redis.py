"""A cache in Redis: one hash with the rows by key, changed by MULTI and EXEC.

    HGET profiles 42

The position is a field of the same hash: what takes the rows away, as Redis does with keys when its memory is full and
it is told to, takes the position too, and the cache is filled again. A transaction of Redis is not undone when one of
its commands fails; here there are none that can, since the key is watched and known to be a hash.

The store that is built beside is the hash NAME:building, which is renamed to NAME.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from headwater.derived.change import Position, Row
from headwater.derived.errors import Behind, DerivedError, Switched, TryAgain
from headwater.derived.store import Prepared

__all__ = ["RedisCache"]

T = TypeVar("T")

_POSITION = "\x00position"
_SECONDS = 10.0
_TRIES = 5


class RedisCache:
    """Rows by key in a Redis."""

    gather_seconds = 0.0
    gather_changes = 5_000
    """A transaction holds up everybody else."""
    shape = ""

    def __init__(self, url: str, name: str) -> None:
        try:
            import redis
        except ModuleNotFoundError:
            raise DerivedError("redis is not installed: pip install 'headwater[redis]'") from None
        self._redis = redis
        self._url, self._name = url, name
        try:
            self._client: Any = redis.Redis.from_url(
                url, socket_timeout=_SECONDS, socket_connect_timeout=_SECONDS, decode_responses=True
            )
        except ValueError as error:
            raise DerivedError(
                f"the address of {name}'s Redis does not read: {error}; write redis://HOST:PORT/0"
            ) from None

    @property
    def place(self) -> str:
        """The address as it may be shown."""
        scheme, _, rest = self._url.partition("://")
        return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"

    def get(self, key: str) -> str | None:
        """Return the JSON of a row."""
        found = self._asking(lambda: self._client.hget(self._name, key))
        return None if found is None else str(found)

    def position(self) -> Position | None:
        """Return how far the cache is."""
        return _position(self._asking(lambda: self._client.hget(self._name, _POSITION)))

    def take(self, row: Row) -> str:
        """Return the row's JSON."""
        return row.text

    def apply(self, changes: Prepared, base: Position | None, position: Position) -> None:
        """Change rows and position in one transaction."""
        gone = [key for key, row in changes.items() if row is None]
        kept = {key: row for key, row in changes.items() if row is not None}

        def apply() -> None:
            with self._client.pipeline(transaction=True) as pipe:
                pipe.watch(self._name)
                if _position(pipe.hget(self._name, _POSITION)) != base:
                    raise Switched(f"{self._name} in {self.place} was moved on by another process")
                pipe.multi()
                if gone:
                    pipe.hdel(self._name, *gone)
                pipe.hset(self._name, mapping={**kept, _POSITION: position.encode()})
                pipe.execute()

        try:
            self._asking(apply)
        except self._redis.WatchError:
            raise Switched(f"{self._name} in {self.place} was moved on by another process") from None

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield keys and rows; one that changes meanwhile may come twice."""
        cursor = 0
        while True:
            cursor, found = self._asking(lambda at=cursor: self._client.hscan(self._name, at, count=1000))  # type: ignore[misc]
            yield from ((key, row) for key, row in found.items() if key != _POSITION)
            if not cursor:
                return

    def count(self) -> int:
        """Return how many rows there are."""
        has_position = self.position() is not None
        return int(self._asking(lambda: self._client.hlen(self._name))) - int(has_position)

    def beside(self) -> RedisCache:
        """Return an empty cache in the same Redis."""
        other = RedisCache(self._url, f"{self._name}:building")
        other._asking(lambda: other._client.unlink(other._name))
        return other

    def switch(self, beside: RedisCache) -> None:
        """Rename the keys of another cache to ours."""

        def rename() -> None:
            with self._client.pipeline(transaction=True) as pipe:
                pipe.watch(self._name, beside._name)
                live = _position(pipe.hget(self._name, _POSITION))
                built = _position(pipe.hget(beside._name, _POSITION))
                if built is None:
                    raise DerivedError(f"{beside._name} is gone from {self.place}: build it anew again")
                if not built.may_replace(live):
                    raise Behind(f"{self._name} has moved on")
                pipe.multi()
                old = f"{self._name}:old"
                if live is not None:  # to be freed in the background
                    pipe.rename(self._name, old)
                pipe.rename(beside._name, self._name)
                pipe.unlink(old)
                pipe.execute()

        for _ in range(_TRIES):
            try:
                self._asking(rename)
                break
            except self._redis.WatchError:
                continue
        else:
            raise Behind(f"{self._name} moves on all the time")
        beside.close()

    def close(self) -> None:
        """Hang up."""
        self._client.close()

    def _asking(self, ask: Callable[[], T]) -> T:
        errors = self._redis.exceptions
        try:
            return ask()
        except errors.WatchError:
            raise
        except errors.AuthenticationError as error:
            raise DerivedError(
                f"{self.place} refuses the password ({error}): write redis://:PASSWORD@HOST:PORT/0"
            ) from error
        except (
            errors.ConnectionError,
            errors.TimeoutError,
            errors.BusyLoadingError,
            errors.ReadOnlyError,
        ) as error:
            if isinstance(error.__context__, ssl.SSLCertVerificationError | FileNotFoundError):
                raise DerivedError(
                    f"{self.place} cannot be trusted ({error.__context__}): write the host as its certificate has it,"
                    " and ?ssl_ca_certs=FILE with the certificate of whoever signed it"
                ) from error
            raise TryAgain(f"the Redis {self.place} does not answer: {error}") from error
        except errors.ResponseError as error:
            if str(error).startswith(("OOM", "MISCONF", "LOADING", "READONLY", "MASTERDOWN")):
                raise TryAgain(f"the Redis {self.place} takes no writes: {error}") from error
            raise DerivedError(
                f"{self.place} refuses what the cache {self._name} does ({error}): see whether another program uses"
                f" the key {self._name}, and give the user the rights to it"
            ) from error


def _position(said: str | None) -> Position | None:
    return None if said is None else Position.decode(said)
