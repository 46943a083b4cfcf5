"""Where the search goes on after a match."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from headwater.pipeline.patterns.errors import PatternError

__all__ = ["Skip", "SkipTo", "parse_skip"]

_FORM: Final = re.compile(
    r"\s*(?:(past\s+last\s+row)|(to\s+next\s+row)|(no\s+skip)|to\s+(first|last)\s+([A-Za-z_]\w*))\s*",
    re.IGNORECASE,
)


class SkipTo(Enum):
    """The rules of SQL:2016, and FlinkCEP's, which reports every match."""

    PAST_LAST_ROW = "past last row"
    NEXT_ROW = "to next row"
    FIRST = "to first"
    LAST = "to last"
    NO_SKIP = "no skip"


@dataclass(frozen=True)
class Skip:
    """A rule, with the number of its symbol if it names one."""

    to: SkipTo
    symbol: int = -1

    def resume(self, taken: list[tuple[int, int]]) -> int:
        """Return the number of the row at which the next match may begin, after one of these (row, symbol).

        A rule that would go back to the match's own first row, or to a symbol that it has not, goes on at the row
        after the first; SQL calls that an error, which a stream that must go on cannot use.
        """
        start = taken[0][0]
        if self.to is SkipTo.PAST_LAST_ROW:
            return taken[-1][0] + 1
        if self.to in (SkipTo.FIRST, SkipTo.LAST):
            rows = [row for row, symbol in taken if symbol == self.symbol]
            if rows:
                return max(rows[0] if self.to is SkipTo.FIRST else rows[-1], start + 1)
        return start + 1


def parse_skip(text: str, symbols: tuple[str, ...]) -> Skip:
    """Return the rule that a text names, or raise `PatternError`.

    >>> parse_skip("to last B", ("A", "B"))
    Skip(to=<SkipTo.LAST: 'to last'>, symbol=1)
    """
    found = _FORM.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise PatternError(
            f"skip={text!r} is no rule; use 'past last row', 'to next row', 'to first {symbols[0]}', "
            f"'to last {symbols[0]}' or 'no skip'"
        )
    for group, rule in ((1, SkipTo.PAST_LAST_ROW), (2, SkipTo.NEXT_ROW), (3, SkipTo.NO_SKIP)):
        if found[group]:
            return Skip(rule)
    if found[5] not in symbols:
        raise PatternError(
            f"skip={text!r}: the pattern has no symbol {found[5]!r}; it has {', '.join(symbols)}"
        )
    return Skip(SkipTo[found[4].upper()], symbols.index(found[5]))
