"""Which published messages the broker has yet to confirm, and which it refused."""

from __future__ import annotations

__all__ = ["Confirms"]


class Confirms:
    """Counts what a channel publishes, as the broker does: from 1, in order."""

    def __init__(self) -> None:
        self._last = 0
        self.waiting: dict[int, None] = {}
        """The tags without an answer, in the order that they were published in."""
        self.refused: set[int] = set()

    def published(self) -> int:
        """Count one more, and return its tag."""
        self._last += 1
        self.waiting[self._last] = None
        return self._last

    def settled(self, tag: int, *, multiple: bool, taken: bool) -> None:
        """Note the broker's answer, for all up to a tag where it is for multiple; 0 means all there are."""
        if not multiple:
            tags = [tag] if tag in self.waiting else []
        elif tag == 0:
            tags = list(self.waiting)
        else:
            tags = []
            for waiting in self.waiting:
                if waiting > tag:
                    break
                tags.append(waiting)
        for one in tags:
            del self.waiting[one]
        if not taken:
            self.refused.update(tags)
