"""Patterns of words, arranged so that those which match a routing key are found without trying each.

A pattern is words with dots between them; `*` stands for one word, `#` for any number of them, none too. Every
word of a pattern is a step down a trie. A key is matched by walking it with all the places that its words so far
may have led to: a `#` is a place that may be entered without a word, and that keeps every word. The work is
bounded by the words times the places, whatever the patterns.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class _Node(Generic[T]):
    __slots__ = ("children", "hash", "loops", "star", "values")

    def __init__(self, *, loops: bool = False) -> None:
        self.loops = loops
        """Whether this is the place of a `#`."""
        self.children: dict[str, _Node[T]] = {}
        self.star: _Node[T] | None = None
        self.hash: _Node[T] | None = None
        self.values: dict[T, int] = {}
        """What the patterns that end here stand for, with how often each was added."""

    def step(self, word: str) -> _Node[T] | None:
        if word == "*":
            return self.star
        return self.hash if word == "#" else self.children.get(word)

    def grow(self, word: str) -> _Node[T]:
        node: _Node[T] = _Node(loops=word == "#")
        self._set(word, node)
        return node

    def prune(self, word: str) -> None:
        if word in ("*", "#"):
            self._set(word, None)
        else:
            del self.children[word]

    def _set(self, word: str, node: _Node[T] | None) -> None:
        if word == "*":
            self.star = node
        elif word == "#":
            self.hash = node
        elif node is not None:
            self.children[word] = node

    @property
    def empty(self) -> bool:
        return not (self.values or self.children or self.star or self.hash)


class TopicTrie(Generic[T]):
    """Values by pattern."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def add(self, pattern: str, value: T) -> None:
        """Add a value; what is added twice has to be removed twice."""
        node = self._root
        for word in _words(pattern):
            node = node.step(word) or node.grow(word)
        node.values[value] = node.values.get(value, 0) + 1

    def remove(self, pattern: str, value: T) -> None:
        """Take a value back that was added with this pattern."""
        path = [self._root]
        words = _words(pattern)
        for word in words:
            node = path[-1].step(word)
            if node is None:
                raise KeyError(pattern)
            path.append(node)
        values = path[-1].values
        left = values[value] - 1
        if left:
            values[value] = left
        else:
            del values[value]
        for word, node, parent in zip(reversed(words), reversed(path), path[-2::-1], strict=False):
            if not node.empty:
                break
            parent.prune(word)

    def match(self, key: str) -> list[T]:
        """Return the values of the patterns that the key matches; one may come more than once."""
        places = _entered([self._root])
        for word in _words(key):
            reached: list[_Node[T]] = []
            for node in places:
                if node.loops:
                    reached.append(node)
                child = node.children.get(word)
                if child is not None:
                    reached.append(child)
                if node.star is not None:
                    reached.append(node.star)
            if not reached:
                return []
            places = _entered(reached)
        return [value for node in places for value in node.values]


def _entered(places: list[_Node[T]]) -> list[_Node[T]]:
    """Return the places, which are all different, with those that a `#` leads on to without a word."""
    waiting = [node.hash for node in places if node.hash is not None]
    if not waiting:
        return places
    found = dict.fromkeys(places)
    for node in waiting:
        if node not in found:
            found[node] = None
            if node.hash is not None:
                waiting.append(node.hash)
    return list(found)


def _words(text: str) -> list[str]:
    # No words are not one empty word: "" is matched by "#", and not by "*".
    return text.split(".") if text else []
