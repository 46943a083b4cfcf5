"""`tools/setup` and the Makefile, with a Python that only notes what is asked of it."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PYTHON = """#!/usr/bin/env bash
case "$*" in
  *"sys.version_info"*) [ ! -e too-old ] ;;
  *"import ensurepip"*) [ ! -e no-venv ] ;;
  "--version") echo "Python 3.11.2" ;;
  "-m venv --clear .venv") echo venv >>asked; mkdir -p .venv/bin; cp "$0" .venv/bin/python ;;
  "-m pip install"*)
    [ -e no-network ] && exit 1
    echo "${*: -1}" >>asked
    [[ "$*" == *"--constraint tools/versions.txt"* ]] || echo unpinned >>asked
    [[ "$PYTHONWARNINGS" == ignore:DEPRECATION ]] || echo notices >>asked
    cp "$0" .venv/bin/headwater ;;
  *" freeze "*) echo "six==1.17.0" ;;
  "-") cat >/dev/null ;;
esac
"""

DEBIANS = "/usr/bin/python3"
JAVA = """#!/usr/bin/env bash
[ -e no-java ] || echo 'openjdk version "17.0.15" 2025-04-15' >&2
"""


@dataclass
class Checkout:
    """A checkout on a machine that has this Python and a few tools, but no apt-get."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)

    def setup(self, level: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["tools/setup", level], cwd=self.root, env=self.environment, capture_output=True, text=True
        )

    def asked(self) -> list[str]:
        """Return what was asked of Python since the last look."""
        notes = self.root / "asked"
        lines = notes.read_text().splitlines() if notes.exists() else []
        notes.unlink(missing_ok=True)
        return lines


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A fresh checkout."""
    root, programs = tmp_path / "checkout", tmp_path / "bin"
    (root / "tools").mkdir(parents=True)
    programs.mkdir()
    for name in ("tools/setup", "tools/versions.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, root / name)
    script = root / "tools/setup"
    assert DEBIANS in script.read_text()
    script.write_text(script.read_text().replace(DEBIANS, "debian/python3"))
    for program in ("bash", "env", "dirname", "cat", "sha256sum", "cp", "mkdir", "sed", "mv", "rm", "tee"):
        found = shutil.which(program)
        assert found
        (programs / program).symlink_to(found)
    for program, text in (("python3", PYTHON), ("java", JAVA)):
        (programs / program).write_text(text)
        (programs / program).chmod(0o755)
    return Checkout(root, {"PATH": str(programs)})


def test_debians_python_goes_first_where_it_can_make_environments(checkout: Checkout) -> None:
    (checkout.root / "debian").mkdir()
    debians = checkout.root / "debian/python3"
    debians.write_text(PYTHON.replace("echo venv >>asked", "echo debians >>asked"))
    debians.chmod(0o755)
    assert checkout.setup("demo").returncode == 0
    assert checkout.asked() == ["debians", ".[all]"]
    shutil.rmtree(checkout.root / ".venv")
    debians.write_text(PYTHON.replace("[ ! -e no-venv ]", "exit 1"))
    assert checkout.setup("demo").returncode == 0
    assert checkout.asked() == ["venv", ".[all]"]


def test_installs_once(checkout: Checkout) -> None:
    assert checkout.setup("demo").returncode == 0
    assert checkout.asked() == ["venv", ".[all]"]
    again = checkout.setup("demo")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert checkout.asked() == []


def test_dev_adds_to_demo(checkout: Checkout) -> None:
    checkout.setup("demo")
    checkout.asked()
    assert checkout.setup("dev").returncode == 0
    assert checkout.asked() == [".venv/dev-requirements.txt"]
    assert checkout.setup("dev").returncode == checkout.setup("demo").returncode == 0
    assert checkout.asked() == []


@pytest.mark.parametrize("name", ["pyproject.toml", "tools/versions.txt"])
def test_a_changed_project_is_installed_again(checkout: Checkout, name: str) -> None:
    checkout.setup("dev")
    checkout.asked()
    with (checkout.root / name).open("a") as file:
        file.write("\n# changed\n")
    assert checkout.setup("dev").returncode == 0
    assert checkout.asked() == [".[all]", ".venv/dev-requirements.txt"]


def test_a_moved_checkout_is_installed_again(checkout: Checkout) -> None:
    checkout.setup("demo")
    checkout.asked()
    moved = Checkout(checkout.root.rename(checkout.root.with_name("moved")), checkout.environment)
    assert moved.setup("demo").returncode == 0
    assert moved.asked() == [".[all]"]


def test_an_upgrade_takes_the_newest_and_writes_it_down(checkout: Checkout) -> None:
    checkout.setup("dev")
    checkout.asked()
    assert checkout.setup("upgrade").returncode == 0
    assert checkout.asked() == ["venv", ".[all]", "unpinned", ".venv/dev-requirements.txt", "unpinned"]
    lines = (checkout.root / "tools" / "versions.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["six==1.17.0"]
    assert lines[0].startswith("# The versions")
    assert checkout.setup("dev").returncode == 0
    assert checkout.asked() == []


def test_every_package_of_the_project_has_a_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"].values()
    wanted = {
        re.match(r"[a-z0-9-]+", line)[0]  # type: ignore[index]
        for group in (project["project"]["dependencies"], project["dependency-groups"]["dev"], *extras)
        for line in group
    }
    lines = (ROOT / "tools" / "versions.txt").read_text().splitlines()
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in lines if not line.startswith("#")}
    assert wanted - {"headwater"} <= pinned


def test_a_failed_install_is_tried_again(checkout: Checkout) -> None:
    failure = checkout.root / "no-network"
    failure.touch()
    assert checkout.setup("demo").returncode == 1
    failure.unlink()
    checkout.asked()
    assert checkout.setup("demo").returncode == 0
    assert checkout.asked() == [".[all]"]


@pytest.mark.parametrize(
    ("lack", "level", "sentence"),
    [
        ("too-old", "demo", r"Python 3\.11 or newer is missing: install .*\."),
        ("no-venv", "demo", r".*python3 cannot make virtual environments: install Debian's python3-venv\."),
        (
            "no-java",
            "demo",
            r"pipelines need Java 17 or newer: install Debian's default-jre-headless\.",
        ),
        (
            "no-kcat",
            "real",
            r"the tests with real clients need .*: install Debian's maven kcat openssl chromium( [a-z-]+)*\.",
        ),
        ("no-sense", "nonsense", r"there is nothing called nonsense to set up: .*\."),
    ],
)
def test_what_is_missing_is_said_in_one_sentence(
    checkout: Checkout, lack: str, level: str, sentence: str
) -> None:
    (checkout.root / lack).touch()
    done = checkout.setup(level)
    assert done.returncode == 1
    assert re.fullmatch(f"headwater: {sentence}", done.stderr.splitlines()[-1])
    assert len([line for line in done.stderr.splitlines() if line.startswith("headwater: ")]) == 1


def _targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_help_lists_every_target() -> None:
    listed = subprocess.run(
        ["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert {line.split()[1] for line in listed.stdout.splitlines()} == _targets()
    assert {"setup", "demo", "check", "test", "bench", "clean"} <= _targets()


def test_every_target_that_a_page_names_exists() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    named = {
        target
        for page in pages
        for target in re.findall(r"(?:`|^|PYTHON=\S+ )make ([a-z]+)", page.read_text(), re.MULTILINE)
    }
    assert named
    assert named <= _targets()


def test_ci_runs_every_test() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    assert script.read_text().splitlines()[-1] == "exec make test"
