"""`headwater settings`: the reference of every setting, made from the tables that the broker itself reads."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from headwater.cli.output import json_option, wants_json

if TYPE_CHECKING:
    from headwater.core.settings import Setting, Settings


@dataclass(frozen=True)
class Section:
    """Settings of one kind, and how a user sets them."""

    of: str
    title: str
    how: str
    settings: Settings


def sections() -> list[Section]:
    """Return every table of settings there is."""
    from headwater.broker.broker_settings import BROKER_SETTINGS
    from headwater.broker.group_settings import GROUP_CONFIGS
    from headwater.broker.groups.settings import GROUP_SETTINGS
    from headwater.broker.topic_settings import TOPIC_SETTINGS
    from headwater.broker.transactions.settings import TRANSACTION_SETTINGS

    return [
        Section(
            "broker", "Broker settings", "Set with `headwater broker --config NAME=VALUE`.", BROKER_SETTINGS
        ),
        Section(
            "topic",
            "Topic settings",
            "Set for one topic when it is created, or later with any Kafka tool, such as `kafka-configs`.",
            TOPIC_SETTINGS,
        ),
        Section(
            "group",
            "Group settings",
            "Set for every group with `headwater broker --config NAME=VALUE`.",
            GROUP_SETTINGS,
        ),
        Section(
            "single group",
            "Settings of single groups",
            "Set for one group, before or while it has members, with any Kafka tool, such as "
            "`kafka-configs --entity-type groups`.",
            GROUP_CONFIGS,
        ),
        Section(
            "transaction",
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
@json_option
def settings_command(as_markdown: bool, as_json: bool) -> None:
    """List every setting of the broker, of topics and of groups."""
    if as_markdown:
        click.echo(markdown(), nl=False)
        return
    if wants_json(as_json):
        for section in sections():
            for s in section.settings:
                line = {
                    "setting": s.name,
                    "of": section.of,
                    "type": s.kind.name.lower(),
                    "default": s.text(s.default),
                    "meaning": s.help,
                }
                click.echo(json.dumps(line, ensure_ascii=False))
        return
    # Not a table: beside names this long, eighty columns leave a word a line to what they mean.
    width = shutil.get_terminal_size().columns
    for section in sections():
        click.echo(f"{click.style(section.title, bold=True)}\n{click.wrap_text(section.how, width)}\n")
        for s in section.settings:
            click.echo(f"  {click.style(s.name, fg='cyan')}  {s.kind.name.lower()}, {_default(s)}")
            click.echo(click.wrap_text(s.help, width, initial_indent="      ", subsequent_indent="      "))
        click.echo()
