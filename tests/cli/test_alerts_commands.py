"""`headwater alerts`, on a store with an alert whose messages were given up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headwater.cli import main
from headwater.cli.stack import StackOptions, _serve
from headwater.views import Change, ViewDefinition, open_store


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/views.db"
    with open_store(url) as store:
        store.define(ViewDefinition("sales", ("country",)))
        store.define(ViewDefinition("!fraud", ("id",)))
        store.commit("q", 0, "!fraud", [Change(str(n), json.dumps({"n": n})) for n in range(3)])
        store.outbox.take("!fraud")
        store.outbox.failed("!fraud", [1, 2], error="answered 500", next_at=None)
    return url


def alerts(url: str, *words: str) -> Result:
    return CliRunner().invoke(main, ["alerts", words[0], f"--views={url}", *words[1:]])


def lines(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_alerts_are_listed(url: str) -> None:
    assert lines(alerts(url, "list")) == [{"alert": "fraud", "waiting": 1, "dead": 2}]


def test_what_was_given_up_is_shown_with_the_reason_and_sent_again(url: str) -> None:
    assert lines(alerts(url, "dead", "fraud", "--limit=1")) == [
        {"token": 2, "tries": 1, "error": "answered 500", "row": {"n": 1}}
    ]
    assert alerts(url, "redrive", "fraud").stderr == "2 messages are sent again.\n"
    assert lines(alerts(url, "dead", "fraud")) == []
    assert lines(alerts(url, "list")) == [{"alert": "fraud", "waiting": 3, "dead": 0}]


@pytest.mark.parametrize("allowed", [False, True])
def test_up_hands_on_where_alerts_may_go(tmp_path: Path, allowed: bool) -> None:
    options = StackOptions(None, tmp_path, ("127.0.0.1", 1), ("127.0.0.1", 2), allow_private_webhooks=allowed)
    assert ("--allow-private-webhooks" in _serve(options).command) is allowed


@pytest.mark.parametrize("command", ["dead", "redrive"])
def test_an_alert_that_is_not_there(url: str, command: str) -> None:
    result = alerts(url, command, "nothing")
    assert result.exit_code == 1
    assert "there is no alert named nothing: headwater alerts list shows them" in result.stderr
