"""How far a query has come in a topic, as Spark keeps it in the checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

__all__ = ["SourceOffset"]


@dataclass(frozen=True)
class SourceOffset:
    """The next offset of each partition, the highest event time seen in each, and the watermark.

    A batch goes from one of these to the next; its watermark is that of its end, so a batch that Spark
    replays sees the same one. Times are ms since 1970.

    `starts` counts the times that a process began to read with a known watermark. Spark forgets at a restart
    what each source of a query said, so each says it once again: the offset differs, and a marker comes.
    """

    offsets: dict[int, int] = field(default_factory=dict)
    highs: dict[int, int] = field(default_factory=dict)
    watermark: int | None = None
    topic_id: str | None = None
    starts: int = 0

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> SourceOffset:
        """Return what `dump` wrote."""
        return cls(
            {int(partition): int(offset) for partition, offset in document["offsets"].items()},
            {int(partition): int(high) for partition, high in document.get("highs", {}).items()},
            document.get("watermark"),
            document.get("topic_id"),
            document.get("starts", 0),
        )

    def dump(self) -> dict[str, Any]:
        """Return this as nested dictionaries of primitives, which is what Spark takes."""
        document: dict[str, Any] = {
            "offsets": {str(partition): offset for partition, offset in sorted(self.offsets.items())}
        }
        if self.highs:
            document["highs"] = {str(partition): high for partition, high in sorted(self.highs.items())}
        if self.watermark is not None:
            document["watermark"] = self.watermark
        if self.topic_id is not None:
            document["topic_id"] = self.topic_id
        if self.starts:
            document["starts"] = self.starts
        return document

    def continues(self, before: SourceOffset) -> bool:
        """Tell whether this is of the same topic as `before`, and not of a later one of the same name."""
        return before.topic_id is None or self.topic_id is None or before.topic_id == self.topic_id

    def moved(self, before: SourceOffset) -> bool:
        """Tell whether there is anything to do between `before` and this: records, or a time to tell."""
        return self.offsets != before.offsets or self.tells_time(before)

    def tells_time(self, before: SourceOffset) -> bool:
        """Tell whether the batch from `before` to this has to tell the watermark, for it rose or is forgotten."""
        return self.watermark is not None and (
            self.watermark != before.watermark or self.starts != before.starts
        )

    def at(self, offsets: Mapping[int, int]) -> SourceOffset:
        """Return the same moment at other offsets."""
        return replace(self, offsets=dict(offsets))
