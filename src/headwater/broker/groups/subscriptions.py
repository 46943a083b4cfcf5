"""Which topics the members of a consumer group mean, among those that exist."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol
from uuid import UUID

from headwater.broker.groups.records import Subscription, TopicShape
from headwater.broker.groups.regex import compile_pattern


class TopicView(Protocol):
    """What the coordinator needs to know of a topic."""

    @property
    def name(self) -> str:
        """The topic's name."""
        ...

    @property
    def id(self) -> UUID:
        """The topic's id."""
        ...

    @property
    def partitions(self) -> int:
        """How many partitions it has."""
        ...

    @property
    def internal(self) -> bool:
        """Whether the broker keeps its own state in it."""
        ...


class TopicsView(Protocol):
    """The broker's topics, as far as the coordinator needs them."""

    @property
    def by_name(self) -> Mapping[str, TopicView]:
        """The topics by name."""
        ...

    @property
    def by_id(self) -> Mapping[UUID, TopicView]:
        """The topics by id."""
        ...


class Subscriptions:
    """Resolves subscriptions against the broker's topics."""

    def __init__(self, topics: TopicsView) -> None:
        self._topics = topics
        self.version = 0
        """Grows whenever topics come, go, or gain partitions."""

    def names(self, subscription: Subscription) -> set[str]:
        """Return the names of the existing topics that a subscription means."""
        by_name = self._topics.by_name
        names = {name for name in subscription.topic_names if name in by_name}
        if subscription.topic_regex:
            pattern = compile_pattern(subscription.topic_regex)
            # Who consumes everything does not mean the offsets that consuming it commits.
            names.update(
                name for name, topic in by_name.items() if not topic.internal and pattern.matches(name)
            )
        return names

    def shapes(self, subscriptions: Iterable[Subscription]) -> dict[str, TopicShape]:
        """Return all topics that any of the subscriptions mean, as they are now."""
        # Members of a group mostly say the same, and matching a pattern looks at every topic.
        distinct = {(s.topic_names, s.topic_regex): s for s in subscriptions}
        names: set[str] = set().union(*(self.names(s) for s in distinct.values()))
        by_name = self._topics.by_name
        return {name: TopicShape(by_name[name].id, by_name[name].partitions) for name in names}

    def ids(
        self, subscriptions: Iterable[Subscription], shapes: Mapping[str, TopicShape]
    ) -> list[frozenset[UUID]]:
        """Return for each subscription the ids of the topics in `shapes` that it means."""
        known: dict[tuple[frozenset[str], str | None], frozenset[UUID]] = {}
        result = []
        for subscription in subscriptions:
            key = subscription.topic_names, subscription.topic_regex
            if key not in known:
                names = self.names(subscription)
                known[key] = frozenset(shapes[name].topic_id for name in names if name in shapes)
            result.append(known[key])
        return result
