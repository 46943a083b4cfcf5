"""The file operations the log is made of, in one place so that a test can make them fail.

`headwater.testing.disk.FaultyDisk` overrides these methods to tear writes, fill the disk, fail a sync,
or forget whatever was not synced, as a power loss does.
"""

from __future__ import annotations

import os
from pathlib import Path

from headwater.record.batch import Buffer

_WARMED_AT_ONCE = 256 * 1024
_ONE_BYTE = bytearray(1)


class Disk:
    """The machine's file system."""

    def open(self, path: Path) -> int:
        """Open a file for reading and writing, creating it where it is missing."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def open_existing(self, path: Path) -> int:
        """Open a file that is there, for reading."""
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def close(self, fd: int) -> None:
        """Close a file."""
        os.close(fd)

    def pread(self, fd: int, size: int, position: int) -> bytes:
        """Read up to `size` bytes at `position`."""
        return os.pread(fd, size, position)

    def pread_into(self, fd: int, buffer: memoryview, position: int) -> int:
        """Read into a buffer at `position`, and return how much was read."""
        return os.preadv(fd, [buffer], position)

    def cached(self, fd: int, position: int) -> bool:
        """Tell whether the byte at `position` is in the page cache; true where the system cannot tell."""
        try:
            os.preadv(fd, [_ONE_BYTE], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def warm(self, small: Path | None, fd: int, position: int, size: int) -> None:
        """Bring a range of a file, and a small file, into the page cache; an error shows when they are read."""
        buffer = bytearray(min(_WARMED_AT_ONCE, max(size, 0)))
        try:
            if small is not None and small.exists():
                small.read_bytes()
            for start in range(position, position + size, _WARMED_AT_ONCE):
                if os.preadv(fd, [buffer], start) < len(buffer):
                    break
        except OSError:
            return

    def pwrite(self, fd: int, data: Buffer, position: int) -> int:
        """Write at `position`, and return how much was written."""
        return os.pwrite(fd, data, position)

    def write_all(self, fd: int, data: Buffer, position: int) -> None:
        """Write all of `data` at `position`, however often that takes."""
        written = self.pwrite(fd, data, position)
        while written < len(data):
            written += self.pwrite(fd, memoryview(data)[written:], position + written)

    def truncate(self, fd: int, size: int) -> None:
        """Cut a file to `size` bytes."""
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        """Return when the file's bytes are on stable storage."""
        os.fdatasync(fd)

    def sync_directory(self, path: Path) -> None:
        """Return when the names in a directory are on stable storage."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_all(self) -> None:
        """Return when everything written so far, files and names, is on stable storage."""
        os.sync()

    def make_directory(self, path: Path) -> None:
        """Make a directory that may already be there, in one that is."""
        path.mkdir(exist_ok=True)

    def size(self, fd: int) -> int:
        """Return a file's length in bytes."""
        return os.fstat(fd).st_size

    def remove(self, path: Path) -> None:
        """Remove a file that may already be gone."""
        path.unlink(missing_ok=True)

    def rename(self, source: Path, target: Path) -> None:
        """Give a file or directory another name, replacing a file of that name."""
        os.replace(source, target)

    def write_file(self, path: Path, data: Buffer, *, durable: bool) -> None:
        """Replace a whole small file so that a crash leaves the old one or the new one."""
        temporary = path.with_name(path.name + ".new")
        fd = self.open(temporary)
        try:
            self.truncate(fd, 0)
            self.write_all(fd, data, 0)
            if durable:
                self.sync(fd)
        finally:
            self.close(fd)
        self.rename(temporary, path)
        if durable:
            self.sync_directory(path.parent)
