"""The stores of an application in one process: one that cannot go on does not keep the others from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from headwater.app import App, Derived
from headwater.core.urls import KafkaUrl
from headwater.derived.follower import Follower, Progress
from headwater.derived.stores import open_store, stream_of
from headwater.workers.group import Group

__all__ = ["running_stores"]


def running_stores(
    app: App,
    definitions: Sequence[Derived],
    data: Path,
    broker: KafkaUrl,
    *,
    say: Callable[[str, str], None],
) -> Group[Progress]:
    """Open the stores, and return what keeps them in step; `say` gets the name of one and a line about it."""
    followers = {
        each.name: Follower(
            each.name,
            stream_of(app, each),
            open_store(app, each, data),
            broker,
            dead_letters=app.dead_letters,
            say=partial(say, each.name),
        )
        for each in definitions
    }
    return Group(followers, kind="derived", one_for_all=False)
