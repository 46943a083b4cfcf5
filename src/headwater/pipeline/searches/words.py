"""Text as words, and what a query says about them.

A word is a run of letters, digits and underscores, whatever its case: "Strasse" and "STRAßE" are one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final

__all__ = ["Term", "Text", "terms", "words"]

_WORD: Final = re.compile(r"\w+")
_PART: Final = re.compile(r'\s*(?:"([^"]*)"|([^\s"]+))')


@dataclass(frozen=True)
class Term:
    """Words that follow each other, or, as a prefix, the beginning of one word."""

    words: tuple[str, ...]
    prefix: bool = False

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """What a text has to hold among its keys; for a phrase that is not enough."""
        return (self.words[0] + "*",) if self.prefix else self.words

    @cached_property
    def pattern(self) -> str:
        """What the joined words of a text have to hold."""
        return " " + " ".join(self.words) + ("" if self.prefix else " ")


class Text:
    """The words of one text."""

    def __init__(self, text: str) -> None:
        self._words = words(text)
        self._joined = " " + " ".join(self._words) + " "

    def holds(self, term: Term) -> bool:
        """Whether a word, phrase or prefix is there."""
        return term.pattern in self._joined

    def keys(self, lengths: frozenset[int]) -> set[str]:
        """Return the words, and their beginnings of some lengths as `beginning*`."""
        keys = set(self._words)
        if lengths:
            keys |= {word[:length] + "*" for word in keys for length in lengths if len(word) >= length}
        return keys


def words(text: str) -> list[str]:
    """Return the words of a text, in order.

    >>> words("Quiet, south-facing: 2 rooms!")
    ['quiet', 'south', 'facing', '2', 'rooms']
    """
    return _WORD.findall(text.casefold())


def terms(text: str) -> tuple[Term, ...]:
    """Read what a query says about words; raises ValueError with the reason.

    >>> [(term.words, term.prefix) for term in terms('quiet "south balcony" gard*')]
    [(('quiet',), False), (('south', 'balcony'), False), (('gard',), True)]
    """
    found: list[Term] = []
    position = 0
    text = text.rstrip()
    while position < len(text):
        part = _PART.match(text, position)
        if part is None:
            raise ValueError(f"has a quote that is not closed, at {text[position:].strip()!r}")
        position = part.end()
        phrase, word = part[1], part[2]
        if phrase is not None and "*" in phrase:
            raise ValueError(f'has a phrase with a *, "{phrase}"; a prefix stands by itself, as in gard*')
        prefix = word is not None and word.endswith("*")
        parts = words(word or phrase or "")
        if not parts:
            raise ValueError(f"has no word in {part[0].strip()!r}")
        if prefix and (len(parts) > 1 or words(word[:-1]) != [word[:-1].casefold()]):
            raise ValueError(f"has a prefix that is not one word, {word!r}; write it as in gard*")
        if not prefix and word is not None and "*" in word:
            raise ValueError(f"has a * in the middle of {word!r}; it goes to the end, as in gard*")
        found.append(Term(tuple(parts), prefix))
    if not found:
        raise ValueError("has no word in it")
    return tuple(dict.fromkeys(found))
