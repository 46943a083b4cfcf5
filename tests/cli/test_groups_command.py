"""`headwater groups` where share groups cannot be asked for."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from headwater.cli import groups, share_groups
from headwater.cli.client import Connection
from headwater.client.errors import AuthenticationFailed


def test_a_group_that_is_not_there_is_named_to_whom_share_groups_cannot_be_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(connection: Connection, name: str) -> None:
        raise AuthenticationFailed("'OAUTHBEARER' is not a SASL mechanism that this client knows")

    monkeypatch.setattr(Connection, "admin", lambda self: None)
    monkeypatch.setattr(groups, "_consumer_group", lambda admin, name: None)
    monkeypatch.setattr(share_groups, "describe_share_group", refuse)
    answer = CliRunner().invoke(groups.groups_command, ["describe", "nobody"])
    assert answer.exit_code == 1
    assert answer.stderr == (
        "Error: there is no consumer group named nobody; share groups are left out: "
        "'OAUTHBEARER' is not a SASL mechanism that this client knows\n"
    )
