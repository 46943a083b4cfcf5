"""What goes wrong with derived stores.

DerivedError       needs somebody: says what is wrong, and what to do
├── TryAgain       may be over in a moment: a store or a broker that is away
├── Switched       another process has moved the store on: go on from where it is now
├── Behind         a store that was built anew is older than the one it is to replace
└── Unreadable     a record that cannot be read, and becomes a dead letter
"""

from __future__ import annotations

from headwater.core.errors import HeadwaterError

__all__ = ["Behind", "DerivedError", "Switched", "TryAgain", "Unreadable"]


class DerivedError(HeadwaterError):
    """What keeps a store from following its table until somebody does something."""


class TryAgain(DerivedError):
    """What may be over in a moment."""


class Switched(DerivedError):
    """The store is not where it was left: somebody else has moved it on, or replaced it."""


class Behind(DerivedError):
    """A store that is to be switched to has not read as far as the one that is there."""


class Unreadable(DerivedError):
    """A record that cannot be understood; the row that it is about stays as it was."""
