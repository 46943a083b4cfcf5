"""The state of a bucket of keys on the worker's own disk: what Spark's state would have to be read for otherwise.

Spark's state holds what changed in each batch, one entry a batch, and the name of the last one. A cache that was
left at that name is what all those entries make together; any other one is made anew from them. So nothing is ever
read from here that Spark has not, and a cache that a failed batch or another worker has left behind does no harm.

    b"s" + key    due (8 bytes, or none) and state       b"t" + due + key    nothing: the keys in the order they are due
    b"n"          the name of the last batch

LMDB takes no key of more than 511 bytes: of a long one the beginning and a digest stand for it, and all of it comes
before its state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import lmdb

__all__ = ["Cache", "Change"]

Change = tuple[bytes, bytes | None, int | None]
"""A key, its state or None where it is forgotten, and when it is due."""

_MAP: Final = 1 << 36
_NAME: Final = b"n"
_STATE: Final = b"s"
_TIMER: Final = b"t"
_SIGN: Final = 1 << 63
_LONGEST: Final = 400
_DIGEST: Final = 32
_SIZE: Final = 4


class Cache:
    """The states of one bucket."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._env = lmdb.open(str(directory), map_size=_MAP, sync=False, metasync=False, max_spare_txns=0)
        self._txn: Any = None

    def begin(self, name: str | None, changes: Iterable[Iterable[Change]]) -> None:
        """Begin a batch on the state that `name` is the last change of; `changes` are all there were, oldest first."""
        self._txn = self._env.begin(write=True)
        known = self._txn.get(_NAME)
        if known != (None if name is None else name.encode()):
            self._txn.drop(self._env.open_db(txn=self._txn), delete=False)
            for batch in changes:
                self.apply(batch)

    def get(self, key: bytes) -> bytes | None:
        """Return the state of a key."""
        found = self._txn.get(_STATE + _name_of(key))
        return None if found is None else bytes(found[8 + len(_before_state(key)) :])

    def apply(self, changes: Iterable[Change]) -> None:
        """Take in what changed."""
        txn = self._txn
        get, put, delete = txn.get, txn.put, txn.delete
        for key, state, due in changes:
            named = _name_of(key)
            place = _STATE + named
            before = get(place)
            if before is not None and before[:8] != _NEVER:
                delete(_TIMER + before[:8] + named)
            if state is None:
                delete(place)
                continue
            if due is None:
                put(place, _NEVER + _before_state(key) + state)
            else:
                time = _sortable(due)
                put(place, time + _before_state(key) + state)
                put(_TIMER + time + named, b"")

    def due(self, before: int) -> Iterator[bytes]:
        """Yield the keys that are due before a time, the first ones first."""
        end = _TIMER + _sortable(before)
        with self._txn.cursor() as cursor:
            if not cursor.set_range(_TIMER):
                return
            for place in cursor.iternext(values=False):
                if not place < end:
                    return
                name = bytes(place[9:])
                yield name if len(name) <= _LONGEST else _key_and_state(name, self._txn.get(_STATE + name))[0]

    def next_due(self) -> int | None:
        """Return the time at which the first key is due."""
        with self._txn.cursor() as cursor:
            if not cursor.set_range(_TIMER) or not cursor.key().startswith(_TIMER):
                return None
            return int.from_bytes(cursor.key()[1:9], "big") - _SIGN

    def everything(self) -> Iterator[Change]:
        """Yield all that there is, as changes."""
        with self._txn.cursor() as cursor:
            if not cursor.set_range(_STATE):
                return
            for place, value in cursor.iternext():
                if not place.startswith(_STATE):
                    return
                time = value[:8]
                due = None if time == _NEVER else int.from_bytes(time, "big") - _SIGN
                key, state = _key_and_state(bytes(place[1:]), value)
                yield key, state, due

    def end(self, name: str) -> None:
        """End the batch: this is the state after the change `name`."""
        self._txn.put(_NAME, name.encode())
        self._txn.commit()
        self._txn = None

    def close(self) -> None:
        """Give up a batch that is under way, and close the files."""
        if self._txn is not None:
            self._txn.abort()
            self._txn = None
        self._env.close()


def _name_of(key: bytes) -> bytes:
    """Return what stands for a key; that of a long one is longer than a key that stands for itself."""
    if len(key) <= _LONGEST:
        return key
    return key[:_LONGEST] + blake2b(key, digest_size=_DIGEST).digest()


def _before_state(key: bytes) -> bytes:
    return b"" if len(key) <= _LONGEST else len(key).to_bytes(_SIZE, "big") + key


def _key_and_state(name: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Return a key and its state, from what stands for the key and what lies there."""
    if len(name) <= _LONGEST:
        return name, bytes(value[8:])
    start = 8 + _SIZE
    end = start + int.from_bytes(value[8:start], "big")
    return bytes(value[start:end]), bytes(value[end:])


def _sortable(time: int) -> bytes:
    """Return a time as bytes that sort as times do; never sorts last."""
    return min(max(time + _SIGN, 0), 2**64 - 2).to_bytes(8, "big")


_NEVER: Final = b"\xff" * 8
