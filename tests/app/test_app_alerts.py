"""What can be declared about alerts, and what is refused at its line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headwater.app import Alert, App, AppError
from headwater.cli import main


def declared(**options: Any) -> Alert:
    app = App("shop")
    app.topic("orders", "card string")

    @app.alert(**options)
    def fraud(orders: object) -> object:
        return orders

    app.check()
    found = app.definitions["fraud"]
    assert isinstance(found, Alert)
    return found


@pytest.mark.parametrize(
    "to",
    ["https://hooks.example/a?b=c", "http://127.0.0.1:8000/", "mailto:ops@example.com", "browser:",
     "mailto:a.b+c@example.co.uk,two@localhost"],
)  # fmt: skip
def test_where_alerts_can_go(to: str) -> None:
    assert declared(to=to).to == to


def test_one_incident_is_declared_by_columns_and_a_time() -> None:
    found = declared(to="browser:", group_by=["card", "country"], throttle="15 minutes")
    assert (found.group_by, found.throttle_ms, found.digest_ms) == (("card", "country"), 900_000, None)
    assert declared(to="mailto:a@b", digest="10 minutes").digest_ms == 600_000


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"to": "mailto:"}, "no e-mail address"),
        ({"to": "mailto:ops"}, "no e-mail address"),
        ({"to": "mailto:a@b?bcc=c@d"}, "no e-mail address"),
        ({"to": "mailto:a@b\r\nBcc: c@d"}, "no e-mail address"),
        ({"to": "mailto:a@b%0d%0aBcc:c"}, "no e-mail address"),
        ({"to": "mailto:A <a@b>"}, "no e-mail address"),
        ({"to": "mailto:ä@b"}, "no e-mail address"),
        ({"to": "browser:x"}, "no http or https address"),
        ({"to": "slack:x"}, "no http or https address"),
        ({"to": "https://h/", "group_by": "card"}, "has group_by and no throttle"),
        ({"to": "https://h/", "digest": "1 hour"}, "has a digest and sends no e-mail"),
        ({"to": "mailto:a@b", "digest": "1 hour", "throttle": "1 hour"}, "has a digest and a throttle"),
        (
            {"to": "mailto:a@b", "secret_env": "SECRET"},
            "only requests to an http or https address are signed",
        ),
        ({"to": "https://h/", "throttle": "0 seconds"}, "is no time at all"),
        ({"to": "https://h/", "throttle": "soon"}, "is not a duration"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(AppError, match=text):
        declared(**options)


def test_a_password_in_an_address_is_refused_and_not_shown() -> None:
    with pytest.raises(AppError, match="has a user or password in its address") as refused:
        declared(to="https://ann:hush@hooks.example/")
    assert "hush" not in str(refused.value)


def test_check_shows_how_alerts_are_paced_and_which_webhooks_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "shop.py").write_text(
        """
from headwater import App
app = App("shop")
app.topic("orders", "card string")
app.webhook("bank", topic="orders", secret_env="BANK", scheme="stripe")

@app.alert(to="https://hooks.example/", group_by="card", throttle="15 minutes")
def fraud(orders):
    return orders

@app.alert(to="mailto:ops@example.com", digest="1 hour")
def daily(orders):
    return orders
"""
    )
    document = json.loads(CliRunner().invoke(main, ["check", str(tmp_path / "shop.py")]).output)
    assert [(hook["name"], hook["topic"], hook["scheme"]) for hook in document["webhooks"]] == [
        ("bank", "orders", "stripe")
    ]
    monkeypatch.setattr("headwater.cli.check.wants_json", lambda as_json: as_json)
    result = CliRunner().invoke(main, ["check", str(tmp_path / "shop.py")])
    assert result.exit_code == 0, result.output
    assert "to https://hooks.example/, throttle 15 minutes by card" in result.output
    assert "to mailto:ops@example.com, digest 1 hour" in result.output
    assert "webhook bank  writes here, scheme stripe" in result.output


def test_the_declarations_of_the_page_are_accepted() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "alerts.md").read_text()
    app = App("shop")
    app.topic("orders", "card string, amount double")
    app.topic("order_status", "status string")
    [declarations] = re.findall(r"^```python\n(@app.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)
    exec(compile(declarations, "alerts.md", "exec"), {"app": app})
    app.check()
    found = [each for each in app.definitions.values() if isinstance(each, Alert)]
    assert [each.to.partition(":")[0] for each in found] == ["https", "mailto", "browser"]
