"""`headwater settings`: the reference of every setting, made from the tables that the broker itself reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from headwater.core.settings import Setting, Settings


@dataclass(frozen=True)
class Section:
    """Settings of one kind, and how a user sets them."""

    title: str
    how: str
    settings: Settings


def sections() -> list[Section]:
    """Return every table of settings there is."""
    from headwater.broker.broker_settings import BROKER_SETTINGS
    from headwater.broker.groups.settings import GROUP_SETTINGS
    from headwater.broker.topic_settings import TOPIC_SETTINGS
    from headwater.broker.transactions.settings import TRANSACTION_SETTINGS

    return [
        Section("Broker settings", "Set with `headwater broker --config NAME=VALUE`.", BROKER_SETTINGS),
        Section(
            "Topic settings",
            "Set for one topic when it is created, or later with any Kafka tool, such as `kafka-configs`.",
            TOPIC_SETTINGS,
        ),
        Section(
            "Group settings",
            "Set for every consumer group with `headwater broker --config NAME=VALUE`.",
            GROUP_SETTINGS,
        ),
        Section(
            "Transaction settings",
            "Set for every transactional producer with `headwater broker --config NAME=VALUE`.",
            TRANSACTION_SETTINGS,
        ),
    ]


def markdown() -> str:
    """Return the settings as the page docs/settings.md."""
    lines = [
        "# Settings",
        "",
        "Names and meanings are Kafka's, but for those that start with `headwater.`.",
        "`make docs` writes this page from the code.",
    ]
    for section in sections():
        lines += ["", f"## {section.title}", "", section.how, ""]
        lines += ["| setting | type | default | meaning |", "|---|---|---|---|"]
        lines += [
            f"| `{s.name}` | {s.kind.name.lower()} | {_default(s, quote='`')} | {_escape(s.help)} |"
            for s in section.settings
        ]
    return "\n".join(lines) + "\n"


def _default(setting: Setting, quote: str = "") -> str:
    text = setting.text(setting.default)
    return f"{quote}{text}{quote}" if text else ("none" if text is None else "empty")


def _escape(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


@click.command("settings")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print the page docs/settings.md.")
def settings_command(as_markdown: bool) -> None:
    """List every setting of the broker, of topics and of groups."""
    if as_markdown:
        click.echo(markdown(), nl=False)
        return
    from rich.console import Console
    from rich.table import Table

    console = Console(markup=False, highlight=False)
    for section in sections():
        table = Table(title=section.title, title_justify="left", title_style="bold", caption_justify="left")
        table.caption = section.how
        for heading in ("setting", "type", "default", "meaning"):
            table.add_column(heading, overflow="fold")
        for s in section.settings:
            table.add_row(s.name, s.kind.name.lower(), _default(s), s.help)
        console.print(table)
        console.print()
