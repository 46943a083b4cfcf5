"""How much a property test draws: all of it in `make test`, a part of it between two edits."""

from __future__ import annotations

from hypothesis import settings

_THOROUGH = 100
_FEW = 3  # the first one that Hypothesis draws is the simplest there is


def examples(thorough: int) -> int:
    """Return how many examples the chosen profile draws of a test that draws this many in `make test`."""
    return min(thorough, max(_FEW, thorough * settings().max_examples // _THOROUGH))
