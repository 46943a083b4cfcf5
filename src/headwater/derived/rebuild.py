"""A store built anew from its topic's first record on, beside the live one, and switched to at once."""

from __future__ import annotations

from collections.abc import Callable

from headwater.core.boundaries import boundary
from headwater.core.urls import KafkaUrl
from headwater.derived.errors import Behind, DerivedError
from headwater.derived.follower import Follower, Progress, Stream
from headwater.derived.store import Store
from headwater.workers.worker import Pauses

__all__ = ["rebuild", "switched"]

_ROUNDS = 100
_GATHER_SECONDS = 1.0


def rebuild(
    name: str,
    stream: Stream,
    store: Store,
    broker: KafkaUrl,
    *,
    dead_letters: str,
    say: Callable[[str], None] = lambda line: None,
    progress: Callable[[Progress], None] = lambda progress: None,
    pauses: Pauses | None = None,
) -> int:
    """Build a store anew, and return how many rows it has.

    Whoever reads sees the old one until the switch. Whoever follows the table into it meanwhile goes on with the new
    one. The switch waits until the new one is as far as the old one is by then, so that no reader sees a row go back.
    """
    beside = store.beside()
    try:
        beside.gather_seconds = max(_GATHER_SECONDS, beside.gather_seconds)

        def catch_up() -> None:
            follower = Follower(
                name, stream, beside, broker, dead_letters=dead_letters, say=say, pauses=pauses
            )
            follower.run(until_end=True, tick=lambda: progress(follower.progress))

        return switched(name, store, beside, catch_up, writer="headwater derived run")
    finally:
        beside.close()


def switched(name: str, store: Store, beside: Store, catch_up: Callable[[], None], *, writer: str) -> int:
    """Have one store take another's place once it is as far, and return how many rows it has.

    `catch_up` brings it to where its topic ends, again and again while `writer`, a command, moves the other one on.
    """
    for _ in range(_ROUNDS):
        catch_up()
        boundary("derived.before_switch")
        try:
            rows = beside.count()
            store.switch(beside)
            return rows
        except Behind:
            continue
    raise DerivedError(f"{name} moves on faster than it can be built anew: stop `{writer}` for the while")
