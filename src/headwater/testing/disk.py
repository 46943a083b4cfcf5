"""A disk that fails on request, and forgets on power loss what was not synced.

`FaultyDisk` works on a real directory, and remembers beside it what a power loss would leave:

- of a file, what it held at its last sync, and of what was written since any pages of 4 KB or none, in any
  order, with zeros where a page was claimed and never written;
- of a directory, the names it held when it was last synced, and any number of the changes made
  to it since, in their order.

`crash` makes that into another directory, as the machine would find it after power came back.
"""

from __future__ import annotations

import errno
import os
import random
from dataclasses import dataclass, field
from pathlib import Path

from headwater.log.disk import Disk
from headwater.record.batch import Buffer

PAGE = 4096


@dataclass(eq=False)
class _File:
    """What is durable of a file, and what it held when it lost its last name."""

    durable: bytes = b""
    gone: bytes | None = None


@dataclass(eq=False)
class _Directory:
    """The names in a directory: now, when last synced, and after each change in between."""

    names: dict[str, _File | _Directory] = field(default_factory=dict)
    synced: dict[str, _File | _Directory] = field(default_factory=dict)
    changes: list[dict[str, _File | _Directory]] = field(default_factory=list)

    def changed(self) -> None:
        self.changes.append(dict(self.names))

    def sync(self) -> None:
        self.synced, self.changes = dict(self.names), []


class FaultyDisk(Disk):
    """A disk over the directory `root`, whose present content is taken as durable.

    - `full`: while true, every write fails with ENOSPC.
    - `fail_write(n, ...)`: the n-th write from now fails, perhaps after some bytes.
    - `cut_write(n, ...)`: the n-th write from now comes back short.
    - `fail_sync(n, ...)`: the n-th sync of a file from now fails.
    - `kill()`: the process dies: its files are closed, what it wrote stays.
    - `crash(target)`: the machine dies.
    - `bytes_read`, `syncs`, `open_files`: what was done, for those who count.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.full = False
        self.bytes_read = 0
        self.syncs: list[Path] = []
        self._tree = _learn(root)
        self._open: dict[int, tuple[_File, Path]] = {}
        self._write_errors: dict[int, int] = {}
        self._short_writes: dict[int, int] = {}
        self._sync_errors: dict[int, int] = {}
        self._written = 0
        self._synced = 0

    @property
    def open_files(self) -> int:
        """How many files are open."""
        return len(self._open)

    def fail_write(self, nth: int = 1, *, error: int = errno.ENOSPC, after: int = 0) -> None:
        """Have the n-th write from now fail: at once, or once `after` bytes of it are written."""
        # The kernel reports what it wrote; the error comes with the attempt to write the rest.
        if after:
            self.cut_write(nth, after)
        self._write_errors[self._written + nth + (after > 0)] = error

    def cut_write(self, nth: int, after: int) -> None:
        """Have the n-th write from now come back short, with `after` bytes written."""
        self._short_writes[self._written + nth] = after

    def fail_sync(self, nth: int = 1, *, error: int = errno.EIO) -> None:
        """Have the n-th sync of a file from now fail; nothing of it becomes durable."""
        self._sync_errors[self._synced + nth] = error

    def kill(self) -> None:
        """Close every file without a word, as the end of the process does."""
        for fd in list(self._open):
            self.close(fd)

    def crash(self, target: Path, chance: random.Random | None = None) -> FaultyDisk:
        """Lose power: return a disk on `target`, which receives what is left.

        Without `chance` only what was synced is left; with it, more or less of the rest, too.
        """
        target.mkdir(parents=True)
        self._restore(self._tree, target, self._live_paths(self._tree, self.root), chance)
        return FaultyDisk(target)

    # -- the operations of a disk ----------------------------------------------------------------

    def open(self, path: Path) -> int:
        """Open a file, and note its name where it is new."""
        fd = super().open(path)
        directory = self._directory(path.parent)
        node = directory.names.get(path.name)
        if not isinstance(node, _File):
            node = directory.names[path.name] = _File()
            directory.changed()
        self._open[fd] = (node, path)
        return fd

    def open_existing(self, path: Path) -> int:
        """Open a file that is there."""
        fd = super().open_existing(path)
        node = self._directory(path.parent).names[path.name]
        assert isinstance(node, _File), f"{path} is a directory"
        self._open[fd] = (node, path)
        return fd

    def close(self, fd: int) -> None:
        """Close a file."""
        self._open.pop(fd, None)
        super().close(fd)

    def pread(self, fd: int, size: int, position: int) -> bytes:
        """Read, and count the bytes."""
        data = super().pread(fd, size, position)
        self.bytes_read += len(data)
        return data

    def pwrite(self, fd: int, data: Buffer, position: int) -> int:
        """Write, unless a fault is due."""
        self._written += 1
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if (error := self._write_errors.pop(self._written, None)) is not None:
            raise OSError(error, os.strerror(error))
        after = self._short_writes.pop(self._written, len(data))
        return super().pwrite(fd, memoryview(data)[:after], position)

    def sync(self, fd: int) -> None:
        """Make the file's bytes durable, as far as `crash` goes: the real disk is spared."""
        self._synced += 1
        node, path = self._open[fd]
        self.syncs.append(path)
        if (error := self._sync_errors.pop(self._synced, None)) is not None:
            raise OSError(error, os.strerror(error))
        node.durable = os.pread(fd, os.fstat(fd).st_size, 0)

    def sync_directory(self, path: Path) -> None:
        """Make the names in a directory durable."""
        if path == self.root or self.root in path.parents:
            self._directory(path).sync()

    def sync_all(self) -> None:
        """Make everything durable."""
        self._sync_tree(self._tree, self.root)

    def make_directory(self, path: Path) -> None:
        """Make a directory, and note its name where it is new."""
        super().make_directory(path)
        parent = self._directory(path.parent)
        if path.name not in parent.names:
            parent.names[path.name] = _Directory()
            parent.changed()

    def remove(self, path: Path) -> None:
        """Remove a file, whose name a crash may bring back."""
        directory = self._directory(path.parent)
        node = directory.names.pop(path.name, None)
        if node is not None:
            self._bury(node, path)
            directory.changed()
        super().remove(path)

    def rename(self, source: Path, target: Path) -> None:
        """Rename within a directory; a crash may take it back as a whole."""
        directory = self._directory(source.parent)
        replaced = directory.names.get(target.name)
        if replaced is not None:
            self._bury(replaced, target)
        directory.names[target.name] = directory.names.pop(source.name)
        directory.changed()
        super().rename(source, target)

    # -- what would be left ----------------------------------------------------------------------

    def _directory(self, path: Path) -> _Directory:
        node = self._tree
        for part in path.relative_to(self.root).parts:
            child = node.names[part]
            assert isinstance(child, _Directory), f"{path} is a file"
            node = child
        return node

    @staticmethod
    def _bury(node: _File | _Directory, path: Path) -> None:
        if isinstance(node, _File) and path.exists():
            node.gone = path.read_bytes()

    def _sync_tree(self, node: _File | _Directory, path: Path) -> None:
        if isinstance(node, _File):
            if path.exists():
                node.durable = path.read_bytes()
            return
        node.sync()
        for name, child in node.names.items():
            self._sync_tree(child, path / name)

    def _live_paths(self, node: _Directory, path: Path) -> dict[_File | _Directory, Path]:
        paths: dict[_File | _Directory, Path] = {}
        for name, child in node.names.items():
            paths[child] = path / name
            if isinstance(child, _Directory):
                paths |= self._live_paths(child, path / name)
        return paths

    def _restore(
        self,
        node: _Directory,
        target: Path,
        live: dict[_File | _Directory, Path],
        chance: random.Random | None,
    ) -> None:
        names = chance.choice([node.synced, *node.changes]) if chance else node.synced
        for name, child in names.items():
            if isinstance(child, _Directory):
                (target / name).mkdir()
                self._restore(child, target / name, live, chance)
            else:
                (target / name).write_bytes(self._left_of(child, live.get(child), chance))

    @staticmethod
    def _left_of(node: _File, path: Path | None, chance: random.Random | None) -> bytes:
        if chance is None:
            return node.durable
        latest = node.gone
        if latest is None:
            latest = path.read_bytes() if path is not None and path.exists() else node.durable
        size = chance.choice([len(node.durable), len(latest), _between(chance, node.durable, latest)])
        kept = chance.choice([0.0, 0.5, 0.9, 1.0])
        left = bytearray()
        for start in range(0, size, PAGE):
            page = latest if chance.random() < kept else node.durable
            left += page[start : start + PAGE].ljust(PAGE, b"\0")
        return bytes(left[:size])


def _between(chance: random.Random, one: bytes, other: bytes) -> int:
    return chance.randint(min(len(one), len(other)), max(len(one), len(other)))


def _learn(path: Path) -> _Directory:
    directory = _Directory()
    for entry in path.iterdir():
        directory.names[entry.name] = _learn(entry) if entry.is_dir() else _File(entry.read_bytes())
    directory.sync()
    return directory
