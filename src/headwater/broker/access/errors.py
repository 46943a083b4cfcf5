"""Why a client was not let in: what it is told, and what the log says."""

from __future__ import annotations

from headwater.core.errors import HeadwaterError

__all__ = ["AuthenticationFailed"]


class AuthenticationFailed(HeadwaterError):
    """An exchange that failed.

    The text of the error goes to the client, which is nobody yet: it is the same for a user that does not
    exist and for a password that is wrong. `reason` is for the broker's log, and holds no secret either.
    """

    def __init__(self, message: str, reason: str, user: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.user = user
