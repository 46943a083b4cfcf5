"""The pages say what is so: links lead somewhere, options and settings are described."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from headwater.cli import main
from headwater.cli.settings import markdown, sections

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")


def _prose(page: Path) -> str:
    return re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = [target.partition("#")[0] for target in LINK.findall(_prose(page))]
    local = [target for target in targets if target and "://" not in target]
    assert [target for target in local if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_into_pages_lead_to_a_heading(page: Path) -> None:
    targets = [target for target in LINK.findall(_prose(page)) if "#" in target and "://" not in target]
    places = [
        (page.parent / file if file else page, part) for file, _, part in (t.partition("#") for t in targets)
    ]
    assert [part for file, part in places if file.suffix == ".md" and part not in _headings(file)] == []


def _headings(page: Path) -> set[str]:
    """Return what the headings of a page are linked to by: their words, in lower case, with dashes between."""
    titles = re.findall(r"^#+ (.*)$", _prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_page_is_in_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    listed = {(index.parent / target).resolve() for target in LINK.findall(index.read_text())}
    pages = {page for page in PAGES if page.parent.name != "decisions"}
    assert pages - listed == {index}


def test_every_decision_is_in_its_index() -> None:
    index = ROOT / "docs" / "decisions" / "README.md"
    listed = sorted(target for target in LINK.findall(_prose(index)) if target[0].isdigit())
    assert listed == sorted(path.name for path in index.parent.glob("[0-9]*.md"))


@pytest.mark.parametrize("command", sorted(main.commands))
def test_every_option_is_described(command: str) -> None:
    page = (ROOT / "docs" / "commands.md").read_text()
    start = page.index(f"## `headwater {command}`")
    section = page[start:].partition("\n## ")[0]
    described = set(
        re.findall(r"(?<![\w-])--?[a-zA-Z][a-z-]*", "".join(re.findall(r"^\| `.*", section, re.MULTILINE)))
    )
    options = [p for p in _params(main.commands[command]) if isinstance(p, click.Option)]
    named = {name for option in options for name in (*option.opts, *option.secondary_opts)}
    assert named == described


def _params(command: click.Command) -> Iterator[click.Parameter]:
    yield from command.params
    if isinstance(command, click.Group):
        for child in command.commands.values():
            yield from _params(child)


def test_every_subcommand_is_described() -> None:
    page = (ROOT / "docs" / "commands.md").read_text()
    for name, group in main.commands.items():
        if isinstance(group, click.Group):
            assert [child for child in group.commands if f"`headwater {name} {child}" not in page] == []


def test_every_metric_is_described() -> None:
    source = (ROOT / "src" / "headwater" / "net" / "exposition.py").read_text()
    names = set(re.findall(r'"((?:headwater|process)_[a-z_]+)"', source))
    page = (ROOT / "docs" / "operations.md").read_text()
    described = set(re.findall(r"^\| `((?:headwater|process)_[a-z_]+)", page, re.MULTILINE))
    assert names == described


def test_applications_tell_how_many_partitions_new_topics_get() -> None:
    from headwater.capture.captures import PARTITIONS

    page = (ROOT / "docs" / "applications.md").read_text()
    assert re.findall(r"^\| `partitions` \| (.*?) \|", page, re.MULTILINE) == [str(PARTITIONS)] * 3
    assert f"{PARTITIONS} where nothing is said" in (ROOT / "docs" / "running.md").read_text()


def test_settings_page_is_what_the_code_says() -> None:
    page = ROOT / "docs" / "settings.md"
    assert page.read_text() == markdown(), "docs/settings.md is stale: run make docs"


def test_settings_in_examples_exist() -> None:
    known = {setting.name for section in sections()[:2] for setting in section.settings}
    named = {
        name
        for page in PAGES
        for block in re.findall(r"```.*?```", page.read_text(), flags=re.DOTALL)
        for name in re.findall(r"(?:-c|--config) ([a-z.]+)=", block)
    }
    assert named
    assert named <= known


def test_the_picture_is_an_image() -> None:
    from xml.etree import ElementTree

    picture = ElementTree.parse(ROOT / "docs" / "architecture.svg").getroot()
    assert picture.tag == "{http://www.w3.org/2000/svg}svg"
    assert picture.find("{http://www.w3.org/2000/svg}desc") is not None
