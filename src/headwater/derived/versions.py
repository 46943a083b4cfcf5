"""The versions of a warehouse: directories that never change, and a link that leads to the live one.

    DIRECTORY/current               a link to the version that is live
    DIRECTORY/v-…/part-0003.parquet the rows of one bucket, by the hash of their keys, sorted by key
    DIRECTORY/v-…/_position.json    how far in its topic the version goes

The next version is made beside the live one: parts that no change touches are the same files under a second name (hard
links). Then `current` is renamed to lead to it, at once, with rows and position. Versions that were replaced stay for a
minute, for whoever is reading them.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headwater.core.boundaries import boundary
from headwater.derived.change import Position
from headwater.derived.errors import Behind, DerivedError, Switched
from headwater.derived.locking import locked, sync_directory
from headwater.derived.parts import part_name

__all__ = ["CURRENT", "Version", "Versions"]

CURRENT = "current"
_ABOUT = "_position.json"
_KEEP_SECONDS = 60.0


@dataclass(frozen=True)
class Version:
    """Files with a position."""

    path: Path
    position: Position
    rows: tuple[int, ...]
    """How many rows each bucket has."""


class Versions:
    """The directory of a warehouse, by one of its links."""

    def __init__(self, name: str, directory: Path, link: str = CURRENT) -> None:
        self.name, self.directory, self._link = name, directory, link

    def live(self) -> Version | None:
        """Return the version that the link leads to."""
        link = self.directory / self._link
        try:
            path = self.directory / link.readlink()
            said = json.loads((path / _ABOUT).read_text())
            return Version(path, Position.decode(json.dumps(said["position"])), tuple(said["rows"]))
        except FileNotFoundError:
            if not link.is_symlink():
                return None
            raise DerivedError(
                f"{link} leads to files that are gone: delete {self.directory} and start again, and it is built anew"
            ) from None
        except (OSError, ValueError, KeyError) as error:
            raise DerivedError(
                f"the warehouse {self.directory} does not read ({error}): delete it and start again, and it is"
                " built anew"
            ) from error

    @contextmanager
    def making(self) -> Iterator[Path]:
        """Give a new directory for the parts that change; inside the block `finish` makes a version of it."""
        made = self.directory / f".new-{os.getpid()}-{time.time_ns()}"
        with locked(self.directory / "lock"):
            made.mkdir()
            descriptor = os.open(made, os.O_RDONLY)
            fcntl.flock(descriptor, fcntl.LOCK_SH)  # it is being made, however long that takes
        try:
            yield made
        finally:
            os.close(descriptor)
            shutil.rmtree(made, ignore_errors=True)  # a version has another name

    def finish(
        self,
        made: Path,
        before: Version | None,
        *,
        buckets: int,
        counts: Mapping[int, int],
        position: Position,
    ) -> None:
        """Have a version be the live one; parts that were not written are those of the version before.

        Raises `Switched` where another has become the live one since.
        """
        rows = dict(counts)
        for bucket in range(buckets):
            if bucket not in rows:
                assert before is not None
                os.link(before.path / part_name(bucket), made / part_name(bucket))
                rows[bucket] = before.rows[bucket]
        about = {
            "position": json.loads(position.encode()),
            "rows": [rows[bucket] for bucket in range(buckets)],
        }
        with (made / _ABOUT).open("w") as file:
            file.write(json.dumps(about))
            file.flush()
            os.fsync(file.fileno())
        sync_directory(made)
        boundary("derived.before_link")
        with locked(self.directory / "lock"):
            if self.live() != before:
                raise Switched(f"the warehouse {self.name} was built anew, or moved on by another process")
            self._lead_to(made, before)
        self._clear()

    def forget(self) -> None:
        """Have the link lead nowhere."""
        (self.directory / self._link).unlink(missing_ok=True)

    def switch(self, beside: Versions) -> None:
        """Have our link lead to where another's does."""
        with locked(self.directory / "lock"):
            live, built = self.live(), beside.live()
            if built is None or not built.position.may_replace(None if live is None else live.position):
                raise Behind(f"the warehouse {self.name} has moved on")
            (self.directory / beside._link).rename(self.directory / self._link)
            sync_directory(self.directory)
            if live is not None:
                os.utime(live.path)
        self._clear()

    def _lead_to(self, made: Path, old: Version | None) -> None:
        name = f"v-{time.time_ns()}"
        made.rename(self.directory / name)
        temporary = self.directory / f".{self._link}-{os.getpid()}"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(name)
        temporary.rename(self.directory / self._link)
        sync_directory(self.directory)
        if old is not None:
            os.utime(old.path)  # when it was replaced

    def _clear(self) -> None:
        """Delete versions that were replaced some time ago, and what processes were making when they were killed."""
        with locked(self.directory / "lock"):
            led_to = {str(path.readlink()) for path in self.directory.iterdir() if path.is_symlink()}
            now = time.time()
            for path in self.directory.glob("v-*"):
                if path.name not in led_to and now - path.stat().st_mtime > _KEEP_SECONDS:
                    shutil.rmtree(path, ignore_errors=True)
            for path in self.directory.glob(".new-*"):
                if not _is_made(path):
                    shutil.rmtree(path, ignore_errors=True)


def _is_made(path: Path) -> bool:
    """Tell whether some process is making a version in a directory."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
