"""Tokens: who has which role may do what, and what is kept of them."""

from __future__ import annotations

import hashlib
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
import websockets
from websockets.sync.client import ClientConnection, connect

from headwater.core.errors import SettingError
from headwater.http_client import HttpClient, Refused
from headwater.serve import access as access_module
from headwater.serve.access import ROLES, Access, add_holder, read_holders, remove_holder
from headwater.testing.process import free_port
from headwater.views import ViewStore

from .serve_helpers import Served, served

REQUESTS = {
    ("GET", "/views"): "read",
    ("GET", "/views/sales"): "read",
    ("GET", "/views/sales/DE"): "read",
    ("GET", "/metrics"): "read",
    ("GET", "/health"): "read",
    ("GET", "/openapi.json"): "read",
    ("GET", "/alerts"): "read",
    ("GET", "/nothing"): "read",
    ("POST", "/topics/orders"): "write",
    ("POST", "/events/accounts/a"): "write",
    ("POST", "/alerts/a/redrive"): "operate",
    ("POST", "/views"): "operate",
    ("DELETE", "/views/sales"): "operate",
}
ANYBODY = [("GET", "/"), ("GET", "/headwater.js"), ("GET", "/page/main.js"), ("GET", "/session")]


@pytest.fixture
def tokens(tmp_path: Path) -> dict[str, str]:
    return {role: add_holder(tmp_path / "tokens", f"{role}er", [role]) for role in ROLES}


@pytest.fixture
def locked(store: ViewStore, tokens: dict[str, str], tmp_path: Path) -> Iterator[Served]:
    with served(store, access=Access(tmp_path / "tokens")) as server:
        yield server


def test_each_request_needs_its_role(locked: Served, tokens: dict[str, str]) -> None:
    def ask(method: str, path: str, token: str | None) -> httpx.Response:
        headers = {b"Authorization": f"Bearer {token}".encode()} if token else {}
        return locked.client.request(method, path, headers=headers, json={} if method == "POST" else None)

    for (method, path), needed in REQUESTS.items():
        for wrong in (None, "hw_nonsense", "", "Ä"):
            answer = ask(method, path, wrong)
            assert answer.status_code == 401, (method, path)
            assert answer.headers["www-authenticate"] == "Bearer"
            assert "headwater tokens add" in answer.json()["error"]
        for role, token in tokens.items():
            answer = ask(method, path, token)
            if role == needed:
                assert answer.status_code not in (401, 403), (method, path, answer.text)
            else:
                assert answer.status_code == 403, (method, path)
                assert f"has not the role {needed}" in answer.json()["error"]


def test_the_page_is_for_anybody_but_says_nothing(locked: Served) -> None:
    for method, path in ANYBODY:
        answer = locked.client.request(method, path)
        assert answer.status_code == 200
        assert "sales" not in answer.text


def test_a_browser_shows_its_token_once(locked: Served, tokens: dict[str, str]) -> None:
    assert locked.client.post("/session", headers={"Authorization": "Bearer hw_x"}).status_code == 401
    begun = locked.client.post("/session", headers={"Authorization": f"Bearer {tokens['read']}"})
    assert begun.json() == {"name": "reader", "roles": ["read"]}
    cookie = begun.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert locked.client.get("/views").status_code == 200  # the client has kept the cookie
    assert locked.client.get("/session").json() == {"required": True, "name": "reader", "roles": ["read"]}
    foreign = locked.client.get("/views", headers={"Origin": "https://evil.example"})
    assert foreign.status_code == 403
    locked.client.delete("/session")
    assert locked.client.get("/views").status_code == 401


async def test_websockets_need_a_token_our_host_and_our_origin(
    locked: Served, tokens: dict[str, str]
) -> None:
    url = locked.url.replace("http", "ws") + "/views/sales/live"
    ours = {"Authorization": f"Bearer {tokens['read']}"}
    async with websockets.connect(url, additional_headers=ours, origin=locked.url) as socket:  # type: ignore[arg-type]
        assert "start" in str(await socket.recv())
    for headers, origin, status in (
        ({}, None, 401),
        ({"Authorization": f"Bearer {tokens['write']}"}, None, 403),
        (ours, "https://evil.example", 403),
        (ours, "null", 403),
        (ours | {"Sec-Fetch-Site": "cross-site"}, None, 403),
    ):
        with pytest.raises(websockets.InvalidStatus) as refused:
            await websockets.connect(url, additional_headers=headers, origin=origin)  # type: ignore[arg-type]
        assert refused.value.response.status_code == status


async def test_a_websocket_under_a_foreign_host_is_refused(server: Served) -> None:
    host, _, port = server.url.removeprefix("http://").partition(":")
    with pytest.raises(websockets.InvalidStatus) as refused:
        await websockets.connect("ws://evil.example/views/sales/live", host=host, port=int(port))
    assert refused.value.response.status_code == 421


def test_the_client_brings_its_token(locked: Served, tokens: dict[str, str]) -> None:
    with HttpClient(locked.url, token=tokens["read"]) as client:
        assert client.get("sales", "DE") == {"country": "DE", "revenue": 3}
        assert next(client.feed("sales")).name == "start"
    with HttpClient(locked.url) as client, pytest.raises(Refused, match="a token is needed"):
        client.get("sales", "DE")


def test_a_token_that_is_removed_is_refused_and_the_last_one_opens_nothing(
    locked: Served, tokens: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_module, "_CHECK_SECONDS", 0.0)
    headers = {"Authorization": f"Bearer {tokens['read']}"}
    assert locked.client.get("/views", headers=headers).status_code == 200
    for role in ROLES:
        remove_holder(tmp_path / "tokens", f"{role}er")
    assert locked.client.get("/views", headers=headers).status_code == 401
    assert locked.client.get("/views").status_code == 401


def test_only_hashes_are_kept_and_only_the_owner_can_read_them(tmp_path: Path) -> None:
    path = tmp_path / "data" / "tokens"
    token = add_holder(path, "ann", ["read", "write"])
    assert token not in path.read_text()
    assert path.read_text() == f"ann read,write {hashlib.sha256(token.encode()).hexdigest()}\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for name, text in (("ann", "there is a token named ann already"), ("a b", "is no name for a token")):
        with pytest.raises(SettingError, match=text):
            add_holder(path, name, ["read"])
    with pytest.raises(SettingError, match="there is no token named bob"):
        remove_holder(path, "bob")


def test_tokens_may_come_from_the_environment() -> None:
    digest = hashlib.sha256(b"hw_secret").hexdigest()
    access = Access(None, {"HEADWATER_TOKENS": f"ci write {digest}; ann read,operate {'0' * 64}"})
    holder = access.holder("hw_secret")
    assert holder is not None
    assert (holder.name, holder.roles, access.required) == ("ci", frozenset({"write"}), True)
    assert not Access(None, {}).required
    for line, text in (
        ("hw_a-token-by-mistake", "is not NAME ROLES HASH"),
        (f"ann admin {'0' * 64}", "a role is one of"),
    ):
        with pytest.raises(SettingError, match=text) as refused:
            read_holders([line], "the file")
        assert "by-mistake" not in str(refused.value)


@pytest.mark.real
def test_a_server_beyond_this_machine_needs_tokens_and_logs_none(tmp_path: Path) -> None:
    command = str(Path(sys.executable).with_name("headwater"))
    place = f"0.0.0.0:{free_port()}"
    serve = [command, "serve", f"--http={place}", "--log-level=debug", "--views=sqlite:///views.db"]
    refused = subprocess.run(serve, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert refused.returncode != 0
    assert "make tokens with `headwater tokens add NAME`" in refused.stderr
    added = subprocess.run(
        [command, "tokens", "add", "ann", "--role=read", "--role=operate"],
        capture_output=True, text=True, timeout=60, cwd=tmp_path, check=True,
    )  # fmt: skip
    token = added.stdout.strip()
    listed = subprocess.run(
        [command, "tokens", "list"], capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert listed.stdout == '{"name": "ann", "roles": "read,operate"}\n'
    process = subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert process.stdout is not None
    try:
        assert process.stdout.readline().startswith("ready")
        url = f"http://127.0.0.1:{place.partition(':')[2]}"
        for path in ("/views", "/nothing", "/views/x/changes?since=y"):
            headers = {"Authorization": f"Bearer {token}"}
            assert httpx.get(url + path, headers=headers, trust_env=False).status_code != 401
            assert httpx.get(url + path, trust_env=False).status_code == 401
        for seconds in (1, 2):  # what is refused fills no log
            with pytest.raises(websockets.InvalidStatus):
                connect(f"{url.replace('http', 'ws')}/views/sales/live", close_timeout=seconds)
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=20)
    assert token not in errors
    assert "ASGI" not in errors
    assert process.returncode == 0


def _read_all(websocket: ClientConnection) -> None:
    while True:
        websocket.recv(timeout=10)


def test_a_file_of_tokens_that_cannot_be_read_changes_nothing(
    locked: Served, tokens: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_module, "_CHECK_SECONDS", 0.0)
    (tmp_path / "tokens").write_text("what is this\n")
    for token, status in ((tokens["read"], 200), ("hw_nonsense", 401)):
        answer = locked.client.get("/views", headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == status


def test_live_feeds_end_with_their_token(locked: Served, tokens: dict[str, str], tmp_path: Path) -> None:
    address = locked.url.replace("http", "ws") + "/views/sales/live"
    add_holder(tmp_path / "tokens", "other", ["read"])
    headers = {"Authorization": f"Bearer {tokens['read']}"}
    stream = {**headers, "Accept": "text/event-stream"}
    with (
        connect(address, additional_headers=headers, open_timeout=10) as websocket,
        locked.client.stream("GET", "/views/sales/changes", headers=stream) as answer,
    ):
        lines = answer.iter_lines()
        assert next(lines) == "event: start"
        remove_holder(tmp_path / "tokens", "reader")
        with suppress(httpx.RemoteProtocolError):
            assert len([*lines]) < 100
        with pytest.raises(websockets.ConnectionClosed, match="1008"):
            _read_all(websocket)
