"""The faulty disk itself: what it keeps, what it forgets."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from headwater.testing.disk import PAGE, FaultyDisk


def wrote(disk: FaultyDisk, path: Path, data: bytes, position: int = 0, *, sync: bool = False) -> None:
    fd = disk.open(path)
    disk.pwrite(fd, data, position)
    if sync:
        disk.sync(fd)
    disk.close(fd)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "disk"
    path.mkdir()
    return path


def test_without_luck_only_what_was_synced_is_left(root: Path, tmp_path: Path) -> None:
    (root / "old").write_bytes(b"there before")
    disk = FaultyDisk(root)
    wrote(disk, root / "both", b"abc", sync=True)
    disk.sync_directory(root)
    wrote(disk, root / "both", b"def", 3)
    wrote(disk, root / "unnamed", b"abc", sync=True)
    disk.remove(root / "old")
    left = disk.crash(tmp_path / "left").root
    assert {path.name: path.read_bytes() for path in left.iterdir()} == {
        "old": b"there before",
        "both": b"abc",
    }


def test_with_luck_pages_survive_in_any_order_and_holes_are_zeros(root: Path, tmp_path: Path) -> None:
    disk = FaultyDisk(root)
    wrote(disk, root / "f", b"s" * PAGE, sync=True)
    disk.sync_directory(root)
    wrote(disk, root / "f", b"n" * (4 * PAGE), PAGE)
    seen = set()
    for seed in range(300):
        data = (disk.crash(tmp_path / str(seed), random.Random(seed)).root / "f").read_bytes()
        assert data[:PAGE] == b"s" * PAGE
        pages = [data[i : i + PAGE] for i in range(PAGE, len(data), PAGE)]
        assert all(set(page) in ({0}, {ord("n")}) for page in pages)
        seen.add("".join("0" if page[0] == 0 else "n" for page in pages))
    assert {"", "nnnn", "0000"} <= seen
    assert any("0n" in pages for pages in seen)


def test_a_rename_is_taken_back_as_a_whole_or_not_at_all(root: Path, tmp_path: Path) -> None:
    disk = FaultyDisk(root)
    disk.make_directory(root / "a")
    disk.write_file(root / "f", b"one", durable=True)
    disk.rename(root / "a", root / "b")
    disk.write_file(root / "f", b"two", durable=False)
    seen = set()
    for seed in range(100):
        left = disk.crash(tmp_path / str(seed), random.Random(seed)).root
        names = {path.name for path in left.iterdir()} - {"f.new"}
        assert names in ({"a", "f"}, {"b", "f"})
        seen.add((left / "f").read_bytes())
    assert b"one" in seen
    assert b"two" in seen
    disk.sync_all()
    left = disk.crash(tmp_path / "synced").root
    assert {path.name for path in left.iterdir()} == {"b", "f"}
    assert (left / "f").read_bytes() == b"two"


def test_writes_and_syncs_fail_when_told_to(root: Path) -> None:
    disk = FaultyDisk(root)
    fd = disk.open(root / "f")
    disk.fail_write(2, after=2)
    assert disk.pwrite(fd, b"abc", 0) == 3
    assert disk.pwrite(fd, b"abc", 3) == 2
    with pytest.raises(OSError, match="No space left"):
        disk.pwrite(fd, b"c", 5)
    assert disk.pwrite(fd, b"c", 5) == 1
    disk.fail_sync()
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        disk.sync(fd)
    disk.sync(fd)
    assert disk.open_files == 1
    disk.kill()
    assert disk.open_files == 0
