"""Who may ask: not other sites, not under a foreign name."""

from __future__ import annotations

import pytest

from headwater.core.errors import SettingError
from headwater.serve.guard import check_listen

from .serve_helpers import Served


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:8080", "localhost", "LOCALHOST:1", "[::1]:8080", "10.0.0.7"]
)
def test_our_names_are_served(server: Served, host: str) -> None:
    assert server.client.get("/views", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "localhost.evil.example", "", "[::1", "127.0.0.1.nip.io"]
)
def test_a_foreign_host_is_refused(server: Served, host: str) -> None:
    answer = server.client.get("/views", headers={"Host": host})
    assert answer.status_code in (400, 421)
    assert "sales" not in answer.text


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"},
    ],
)
def test_another_site_is_refused(server: Served, headers: dict[str, str]) -> None:
    for path in ("/", "/views", "/live"):
        assert server.client.get(path, headers=headers).status_code == 403
    posted = server.client.post("/topics/orders", json={}, headers=headers)
    assert posted.status_code == 403


def test_our_own_page_may_ask_and_a_link_to_it_may_be_followed(server: Served) -> None:
    ours = {"Origin": server.url, "Sec-Fetch-Site": "same-origin"}
    assert server.client.get("/views", headers=ours).status_code == 200
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert server.client.get("/", headers=link).status_code == 200
    assert server.client.get("/views", headers=link).status_code == 403


def test_answers_carry_the_headers_that_keep_them_apart(server: Served) -> None:
    page = server.client.get("/")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    for answer in (page, server.client.get("/views"), server.client.get("/nothing")):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert "server" not in answer.headers or answer.headers["server"] == "uvicorn"


def test_listening_beyond_this_machine_is_asked_for_by_name() -> None:
    for host in ("127.0.0.1", "::1", "localhost", "127.0.0.53"):
        check_listen(host, insecure=False)
    for host in ("0.0.0.0", "::", "192.168.1.4", "db.example"):
        with pytest.raises(SettingError, match=r"make tokens with .* or add --insecure-listen"):
            check_listen(host, insecure=False)
        check_listen(host, insecure=True)
        check_listen(host, insecure=False, tokens=True)
