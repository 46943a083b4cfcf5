"""The words of a statement in SQL."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Name", "Statement", "parts", "plain", "words"]

Name = tuple[str, str]
"""The database and the table."""

_TOKEN = re.compile(
    r"""\s+|\#[^\n]*|--(?=\s)[^\n]*          # nothing
    |/\*M?!\d*|\*/                          # marks around what other versions would not understand
    |/\*.*?\*/
    |(`(?:[^`]|``)*`|'(?:[^'\\]|''|\\.)*'|"(?:[^"\\]|""|\\.)*"|[\w$@]+|.)""",
    re.VERBOSE | re.DOTALL,
)


def words(text: str) -> list[str]:
    """Return the words of a statement without comments."""
    return [found[1] for found in _TOKEN.finditer(text) if found[1]]


def plain(word: str) -> str:
    """Return a name without quotes."""
    return word[1:-1].replace(word[0] * 2, word[0]) if word[0] in '`"' else word


@dataclass
class Statement:
    """The words of a statement, read from the left."""

    words: list[str]
    schema: str
    at: int = 0

    def peek(self, ahead: int = 0) -> str:
        """Return a word in small letters without taking it; nothing behind the last."""
        place = self.at + ahead
        return self.words[place].lower() if place < len(self.words) else ""

    def take(self, *words: str) -> bool:
        """Take these words if they are next."""
        if all(self.peek(place) == word for place, word in enumerate(words)):
            self.at += len(words)
            return True
        return False

    def name(self) -> Name:
        """Take the name of a table."""
        first = plain(self.words[self.at])
        self.at += 1
        if self.take("."):
            self.at += 1
            return first, plain(self.words[self.at - 1])
        return self.schema, first

    def rest(self) -> list[str]:
        """Return the words that are left."""
        return self.words[self.at :]


def parts(words: list[str]) -> list[list[str]]:
    """Return the words between commas that are in no brackets."""
    found: list[list[str]] = [[]]
    depth = 0
    for word in words:
        depth += (word == "(") - (word == ")")
        if word == "," and not depth:
            found.append([])
        else:
            found[-1].append(word)
    return found
