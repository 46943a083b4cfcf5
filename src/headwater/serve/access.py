"""Who may ask for what: bearer tokens with roles, of which only hashes are kept.

A line of the file of tokens is `NAME ROLES HASH`: `ann read,write 9f86…`. A token is 32 random bytes, which nobody
guesses: a plain SHA-256 of it is enough. The file is read again when it changes, so a token that is removed is
refused within a second. The same lines may stand in the environment, separated by semicolons.

    read      views, feeds, events, topics' figures, metrics: every GET
    write     POST to topics and event streams
    operate   everything else, like sending alerts again and erasing personal data
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from headwater.core.errors import SettingError

logger = logging.getLogger(__name__)

__all__ = [
    "ENVIRONMENT",
    "ROLES",
    "Access",
    "Admission",
    "Holder",
    "add_holder",
    "read_holders",
    "remove_holder",
    "role_for",
]

ROLES = ("read", "write", "operate")
ENVIRONMENT = "HEADWATER_TOKENS"
_CHECK_SECONDS = 1.0
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,100}")
_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Holder:
    """Who holds a token, what for, and the token's hash."""

    name: str
    roles: frozenset[str]
    hash: str

    def line(self) -> str:
        """Return the line of the file."""
        return f"{self.name} {','.join(role for role in ROLES if role in self.roles)} {self.hash}"


def read_holders(lines: Iterable[str], where: str) -> list[Holder]:
    """Return the holders that lines name, or raise `SettingError`."""
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        match line.split():
            case [name, roles, digest] if _NAME.fullmatch(name) and _HASH.fullmatch(digest):
                given = frozenset(roles.split(","))
                if not given <= set(ROLES):
                    raise SettingError(f"line {number} of {where}: a role is one of {', '.join(ROLES)}")
                found.append(Holder(name, given, digest))
            case _:
                # The line is not shown: it may be a token that somebody wrote there by mistake.
                raise SettingError(
                    f"line {number} of {where} is not NAME ROLES HASH: `headwater tokens add` writes such lines"
                )
    return found


def add_holder(path: Path, name: str, roles: Iterable[str]) -> str:
    """Make a token, keep its hash in a file, and return the token, which nobody can tell again."""
    if not _NAME.fullmatch(name):
        raise SettingError(f"{name!r} is no name for a token: letters, digits and . _ @ - are")
    holders = _of_file(path)
    if any(holder.name == name for holder in holders):
        raise SettingError(
            f"there is a token named {name} already: `headwater tokens remove {name}` removes it"
        )
    token = f"hw_{secrets.token_urlsafe(32)}"
    _write(path, [*holders, Holder(name, frozenset(roles), _hashed(token))])
    return token


def remove_holder(path: Path, name: str) -> None:
    """Remove a token by its name."""
    holders = _of_file(path)
    left = [holder for holder in holders if holder.name != name]
    if len(left) == len(holders):
        names = ", ".join(holder.name for holder in holders) or "none"
        raise SettingError(f"there is no token named {name} in {path}: there are {names}")
    _write(path, left)


def role_for(method: str, path: str) -> str | None:
    """Return the role that a request needs; None for what anybody may have.

    >>> role_for("GET", "/views/sales"), role_for("POST", "/topics/orders"), role_for("DELETE", "/events/bank/ann")
    ('read', 'write', 'operate')
    """
    if path in ("/", "/headwater.js", "/session") or path.startswith("/page/"):
        return None
    if path.startswith("/hooks/"):
        return None  # they are signed
    if method in ("GET", "HEAD"):
        return "read"
    return "write" if method == "POST" and path.startswith(("/topics/", "/events/")) else "operate"


class Access:
    """The tokens that are let in. Without any, everybody is."""

    def __init__(self, path: Path | None = None, environment: Mapping[str, str] | None = None) -> None:
        self._path = path
        text = (environment or {}).get(ENVIRONMENT, "")
        self._fixed = read_holders(re.split(r"[;\n]", text), f"the variable {ENVIRONMENT}")
        self._stamp: tuple[int, int] | None = None
        self._checked = 0.0
        self._required = False
        self._holders: list[Holder] = []
        self.told: set[Callable[[], None]] = set()
        """Called when the tokens have changed: live feeds outlive the request that was let in."""
        self.refresh()

    @property
    def required(self) -> bool:
        """Whether a token is needed: removing the last one locks the door, and does not open it."""
        self.refresh()
        return self._required

    def holder(self, token: str) -> Holder | None:
        """Return who holds a token."""
        self.refresh()
        hashed = _hashed(token)
        found = None
        for holder in self._holders:  # all are compared, so that the time taken tells nothing
            if hmac.compare_digest(holder.hash, hashed):
                found = holder
        return found

    def refresh(self) -> None:
        """Read the tokens again if they have changed, and tell of it; not more often than once a second."""
        now = time.monotonic()
        if self._checked and now - self._checked < _CHECK_SECONDS:
            return
        is_first, self._checked = not self._checked, now
        stamp = None
        if self._path is not None:
            try:
                about = self._path.stat()
                stamp = (about.st_mtime_ns, about.st_ino)
            except FileNotFoundError:
                pass
        if stamp != self._stamp or not self._holders:
            known = self._holders
            try:
                self._holders = [*self._fixed, *(_of_file(self._path) if self._path is not None else [])]
            except SettingError as error:
                if is_first:
                    raise
                self._required = True  # whoever wrote there meant to let not everybody in
                if stamp != self._stamp:
                    logger.warning("%s; those that were known stay", error)
            self._stamp = stamp
            self._required = self._required or bool(self._holders)
            if known != self._holders:
                for tell in [*self.told]:
                    tell()


@dataclass(frozen=True)
class Admission:
    """What let a request in."""

    access: Access
    token: str
    role: str

    @property
    def holds(self) -> bool:
        """Whether it would still be let in."""
        holder = self.access.holder(self.token)
        return holder is not None and self.role in holder.roles


def _of_file(path: Path) -> list[Holder]:
    try:
        text = path.read_text()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"cannot read the tokens in {path}: {error}") from error
    return read_holders(text.splitlines(), str(path))


def _write(path: Path, holders: Iterable[Holder]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.writelines(holder.line() + "\n" for holder in holders)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def _hashed(token: str) -> str:
    return hashlib.sha256(token.encode(errors="surrogateescape")).hexdigest()
