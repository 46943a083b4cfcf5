"""What is wrong with a pattern, a condition or a measure, where, and what to write instead."""

from __future__ import annotations

from headwater.core.errors import HeadwaterError

__all__ = ["PatternError"]


class PatternError(HeadwaterError):
    """A pattern, condition, measure or option of `match` that cannot be understood."""

    @classmethod
    def at(cls, text: str, position: int, what: str) -> PatternError:
        """Return the error with the text and a mark under the place.

        >>> print(PatternError.at("A || B", 3, "something is missing between | and |; write A | B"))
        something is missing between | and |; write A | B (at character 4)
            A || B
               ^
        """
        shown = text.replace("\n", " ").replace("\t", " ")
        return cls(f"{what} (at character {position + 1})\n    {shown}\n    {' ' * position}^")
