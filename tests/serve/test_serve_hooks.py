"""Messages of other services: who is let in, what is written, and what is absorbed."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from headwater.app import App, AppError
from headwater.core.errors import SettingError
from headwater.serve.broker import BrokerAway, UnknownTopic
from headwater.serve.errors import handlers
from headwater.serve.hooks import Hooks, hook_secrets
from headwater.serve.once import KeyReused, Payload, Written
from headwater.serve.signatures import sign

SECRETS = {"ours": b"one", "stripe": b"two", "github": b"three"}


class Topics:
    """A broker, and what writes to it once, as far as hooks see them."""

    def __init__(self) -> None:
        self.written: list[tuple[str, bytes | None, bytes]] = []
        self.seen: dict[str, tuple[Any, int]] = {}
        self.error: Exception | None = None

    async def require(self, topic: str) -> None:
        if self.error is not None:
            raise self.error

    async def write(self, topic: str, payload: Payload, key: str) -> Written:
        assert len(key) <= 200
        if key in self.seen:
            before, offset = self.seen[key]
            if before != list(payload):
                raise KeyReused("other records")
            return Written([(0, offset)], repeated=True)
        self.seen[key] = (list(payload), len(self.written))
        [(record_key, value)] = payload
        self.written.append((topic, record_key, value))
        return Written([(0, len(self.written) - 1)], repeated=False)


def application() -> App:
    app = App("shop")
    app.topic("payments", "id string, amount double", key="id")
    app.topic("pushes", "ref string")
    app.webhook("ours", topic="payments", secret_env="OURS")
    app.webhook("stripe", topic="payments", secret_env="STRIPE", scheme="stripe", tolerance="1 minute")
    app.webhook("github", topic="pushes", secret_env="GITHUB", scheme="github", key="ref")
    app.check()
    return app


@pytest.fixture
def topics() -> Topics:
    return Topics()


class Client:
    """Asks an application without a server."""

    def __init__(self, app: Starlette) -> None:
        self._app = app

    def request(
        self, method: str, path: str, content: bytes = b"", headers: dict[str, str] | None = None
    ) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self._app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                return await client.request(method, path, content=content, headers=headers)

        return asyncio.run(ask())

    def post(self, path: str, content: bytes, headers: dict[str, str] | None = None) -> httpx.Response:
        return self.request("POST", path, content, headers)


@pytest.fixture
def client(topics: Topics) -> Client:
    hooks = Hooks(topics, topics, application(), SECRETS)  # type: ignore[arg-type]
    return Client(Starlette(routes=hooks.routes(), exception_handlers=handlers))


def post(
    client: Client, hook: str, body: bytes, *, secret: bytes | None = None, at: float | None = None
) -> tuple[int, Any]:
    secret = secret or SECRETS[hook]
    header = sign(secret, body, int(time.time() if at is None else at))
    headers = {
        "ours": {"Headwater-Signature": header},
        "stripe": {"Stripe-Signature": header},
        "github": {"X-Hub-Signature-256": "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest()},
    }[hook]
    answer = client.post(f"/hooks/{hook}", content=body, headers=headers)
    return answer.status_code, answer.json()


@pytest.mark.parametrize(
    ("hook", "written"),
    [
        ("ours", ("payments", b"p1", b'{"id": "p1", "amount": 1.10}')),
        ("stripe", ("payments", b"p1", b'{"id": "p1", "amount": 1.10}')),
        ("github", ("pushes", b"main", b'{"ref": "main"}')),
    ],
)
def test_a_signed_message_is_written_as_it_came(
    client: Client, topics: Topics, hook: str, written: tuple[str, bytes, bytes]
) -> None:
    status, answer = post(client, hook, written[2])
    assert status == 200
    assert answer == {"topic": written[0], "partition": 0, "offset": 0, "repeated": False}
    assert topics.written == [written]


@pytest.mark.parametrize("hook", ["ours", "stripe", "github"])
def test_a_message_that_comes_again_is_written_once(client: Client, topics: Topics, hook: str) -> None:
    body = b'{"id": "p1", "ref": "main"}'
    assert post(client, hook, body)[1]["repeated"] is False
    # Signed anew, as services do it: the id counts.
    status, answer = post(client, hook, body, at=time.time() - 30)
    assert (status, answer["repeated"], answer["offset"]) == (200, True, 0)
    assert len(topics.written) == 1


def test_the_same_event_with_another_body_is_the_same_event(client: Client, topics: Topics) -> None:
    post(client, "stripe", b'{"id": "evt_1", "pending_webhooks": 2}')
    status, answer = post(client, "stripe", b'{"id": "evt_1", "pending_webhooks": 1}')
    assert (status, answer) == (200, {"topic": "payments", "repeated": True})
    assert len(topics.written) == 1


def test_ids_of_two_hooks_are_not_each_others(client: Client, topics: Topics) -> None:
    post(client, "ours", b'{"id": "1"}')
    post(client, "stripe", b'{"id": "1"}')
    assert len(topics.written) == 2


def test_an_unsigned_id_does_not_make_a_message_new(client: Client, topics: Topics) -> None:
    body = b'{"ref": "main"}'
    signature = "sha256=" + hmac.new(SECRETS["github"], body, hashlib.sha256).hexdigest()
    for number in range(3):
        headers = {"X-Hub-Signature-256": signature, "X-GitHub-Delivery": str(number)}
        assert client.post("/hooks/github", content=body, headers=headers).status_code == 200
    assert len(topics.written) == 1


@pytest.mark.parametrize("hook", ["ours", "stripe", "github"])
def test_what_is_not_signed_is_refused_and_told_nothing(client: Client, topics: Topics, hook: str) -> None:
    body = b'{"id": "p1"}'
    status, answer = post(client, hook, body, secret=b"guess")
    good = hmac.new(SECRETS[hook], body, hashlib.sha256).hexdigest()
    assert status == 401
    assert "does not fit the body" in answer["error"]
    assert good not in answer["error"]
    assert client.post(f"/hooks/{hook}", content=body).status_code == 401
    # Nor is it told whether the body is any good.
    assert post(client, hook, b"no JSON", secret=b"guess")[0] == 401
    assert topics.written == []


@pytest.mark.parametrize(
    ("hook", "age", "status"), [("ours", 299, 200), ("ours", 305, 401), ("stripe", 65, 401)]
)
def test_an_old_signature_is_refused(client: Client, hook: str, age: int, status: int) -> None:
    found, answer = post(client, hook, b'{"id": "p1"}', at=time.time() - age)
    assert found == status
    assert status == 200 or "too far from ours" in answer["error"]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"no", "no JSON"),
        (b"[]", "an array"),
        (b'[{"id": "1"}]', "an array"),
        (b'"text"', "no JSON object"),
        (b'{"id": "\\ud800"}', "id holds half a surrogate pair"),
        (b'{"id": ' + b"1" * 5000 + b"}", "thousands of digits"),
        (b'{"id": "1", "amount": "much"}', "amount is text, and the schema says double"),
    ],
)
def test_a_body_that_does_not_fit_is_refused(client: Client, topics: Topics, body: bytes, text: str) -> None:
    status, answer = post(client, "ours", body)
    assert status == 400
    assert text in answer["error"]
    assert topics.written == []


def test_a_broker_that_is_away_is_asked_for_again(client: Client, topics: Topics) -> None:
    for error in (BrokerAway("away"), UnknownTopic("no such topic")):
        topics.error = error
        assert post(client, "ours", b'{"id": "1"}')[0] == 503
    topics.error = None
    assert post(client, "ours", b'{"id": "1"}')[1]["repeated"] is False


def test_a_hook_that_is_not_there(client: Client) -> None:
    assert client.post("/hooks/other", content=b"{}").status_code == 404
    assert client.request("GET", "/hooks/ours").status_code == 405


def test_a_body_that_is_too_large_is_not_read(client: Client) -> None:
    answer = client.post("/hooks/ours", content=b"x" * (8 * 1024 * 1024 + 1))
    assert answer.status_code == 413


def test_secrets_come_from_the_environment() -> None:
    found = hook_secrets(application(), {"OURS": "a", "STRIPE": "b", "GITHUB": "c"})
    assert found == {"ours": b"a", "stripe": b"b", "github": b"c"}
    with pytest.raises(SettingError, match="to the webhook stripe are signed with STRIPE: set it"):
        hook_secrets(application(), {"OURS": "a"})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"topic": "other"}, "writes to other, which is no declared topic"),
        ({"topic": "raw"}, "writes JSON, and the topic raw holds raw"),
        ({"topic": "payments", "scheme": "md5"}, "scheme is one of"),
        (
            {"topic": "payments", "secret_env": "not a name"},
            "secret_env is no name of an environment variable",
        ),
        ({"topic": "payments", "tolerance": "13 hours"}, "at most 12 hours"),
    ],
)
def test_declarations_that_do_not_fit(options: dict[str, Any], text: str) -> None:
    app = App("shop")
    app.topic("payments", "id string")
    app.topic("raw", "value binary", format="raw")

    def declare() -> None:
        app.webhook("hook", **{"secret_env": "SECRET", **options})
        app.check()

    with pytest.raises(AppError, match=text):
        declare()


def test_a_hook_is_declared_once() -> None:
    app = App("shop")
    app.topic("hook", "id string")  # hooks have names of their own
    app.webhook("hook", topic="hook", secret_env="SECRET")
    with pytest.raises(AppError, match="the webhook hook is declared already"):
        app.webhook("hook", topic="hook", secret_env="SECRET")
    assert list(app.webhooks) == ["hook"]
