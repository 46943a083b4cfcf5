"""A run imports the files that hold what it wants, and no test is missed by that."""

from __future__ import annotations

from pathlib import Path

import pytest

from wanted import holds_nothing

ALL = "import pytest\n\npytestmark = [pytest.mark.real, pytest.mark.timeout(9)]\n\ndef test_a(): pass\n"
SOME = "import pytest\n\n@pytest.mark.real\ndef test_a(): pass\n\ndef test_b(): pass\n"
NONE = "def test_a(): pass\n"


@pytest.mark.parametrize(
    ("text", "with_real", "without"),
    [(ALL, False, True), (SOME, False, False), (NONE, True, False)],
    ids=["all", "some", "none"],
)
def test_a_file_in_which_nothing_is_wanted(tmp_path: Path, text: str, with_real: bool, without: bool) -> None:
    file = tmp_path / "test_it.py"
    file.write_text(text)
    assert holds_nothing(file, "real") is with_real
    assert holds_nothing(file, "not real") is without
    assert not holds_nothing(file, "")
    assert not holds_nothing(file, "real and not slow")


def test_other_files_are_always_wanted(tmp_path: Path) -> None:
    helper, directory = tmp_path / "helper.py", tmp_path / "test_directory"
    helper.write_text(NONE)
    directory.mkdir()
    assert not holds_nothing(helper, "real")
    assert not holds_nothing(directory, "real")
