"""What a view store refuses."""

from __future__ import annotations

from headwater.core.errors import HeadwaterError

__all__ = ["TokenGone", "UnknownView", "ViewError"]


class ViewError(HeadwaterError):
    """A view, address or file that does not fit."""


class UnknownView(ViewError):
    """A view that nobody has defined."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no view named {name}")
        self.name = name


class TokenGone(ViewError):
    """A position that the change feed does not reach back to any more, or never had."""

    def __init__(self, view: str, token: object) -> None:
        super().__init__(
            f"the changes of {view} since token {token} are not there any more: "
            "read the rows of the view and go on from the token that comes with them"
        )
        self.view = view
        self.token = token
