"""What a view store refuses."""

from __future__ import annotations

from headwater.core.errors import HeadwaterError

__all__ = ["HistoryGone", "StoreUnavailable", "TokenGone", "UnknownView", "ViewError"]


class ViewError(HeadwaterError):
    """A view, address or file that does not fit."""


class StoreUnavailable(ViewError):
    """A store that does not answer now, and may answer later."""


class HistoryGone(ViewError):
    """A moment that a view's history does not reach back to, or a view that keeps none."""

    def __init__(self, view: str, since: str | None) -> None:
        why = (
            'keeps no history: declare it with @app.view(…, history="30 days")'
            if since is None
            else f"has a history that begins at {since}: ask for a later moment"
        )
        super().__init__(f"the view {view} {why}")
        self.view = view


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
